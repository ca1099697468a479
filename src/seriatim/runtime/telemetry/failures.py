"""What an operator does about an engine that fails: the last field of the log lines about it."""

from seriatim.domain.errors import SeriatimError

STORE_STEP = (
    "nothing acknowledged is lost, and clients retry; on a data folder make room on its disk and see that it can be "
    "written, on DynamoDB check network, credentials, tables and capacity"
)
EVENTS_STEP = (
    "stored messages are published once it works again; on a data folder make room on its disk and see that it can be "
    "written, on Kafka check brokers, topics and access lists"
)
DIRECTORY_STEP = "pushes may wait for the probes of gateways; check Redis and the network to it"


def reason_of(error: Exception) -> str:
    """The words of a bug may quote what people wrote: only its kind is logged."""
    return error.log_reason if isinstance(error, SeriatimError) else type(error).__name__
