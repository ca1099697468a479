"""What an operator does about an engine that fails: the last field of the log lines about it."""

STORE_STEP = (
    "nothing acknowledged is lost, and clients retry; on a data folder make room on its disk and see that it can be "
    "written, on DynamoDB check network, credentials, tables and capacity"
)
EVENTS_STEP = (
    "stored messages are published once it works again; on a data folder make room on its disk and see that it can be "
    "written, on Kafka check brokers, topics and access lists"
)
DIRECTORY_STEP = "pushes may wait for the probes of gateways; check Redis and the network to it"
