"""The durability plane in another process: gateways and the REST edge reach it by gRPC, in batches and in order."""

import os

# Read when gRPC is imported. By itself it writes to standard error when the other side hangs up, between our log lines;
# everything it reports is raised as an exception, too.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
