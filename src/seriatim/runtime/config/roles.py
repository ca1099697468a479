"""What a process can be: each role is a plane, or REST. One process may have several, and by default all."""

from enum import StrEnum


class ProcessRole(StrEnum):
    GATEWAY = "gateway"
    INGEST = "ingest"
    FANOUT = "fanout"
    API = "api"


ALL_ROLES = tuple(ProcessRole)
