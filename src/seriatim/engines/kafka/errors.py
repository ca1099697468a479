"""Errors of librdkafka, translated into those of the domain. Kafka's own name of the error is for the log alone."""

from confluent_kafka import KafkaError

from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable

# The coordinator does not know this member (any more): its partitions may be assigned to others.
EXPELLED = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID)

# The group is between two generations, and the answer about the new one has not reached this member yet.
_REBALANCING = (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS)
_NOT_AUTHORIZED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


FAILED = "the event log is failing; retry with the same id"


class NotAuthorized(ServiceUnavailable):
    """Kafka knows this client, and its access lists do not allow the operation."""


class RebalanceInProgress(ServiceUnavailable):
    """Kafka did nothing, because the group is being rebalanced. The same request may succeed a moment later."""


def unavailable(operation: str, error: KafkaError) -> ServiceUnavailable:
    if error.code() in _NOT_AUTHORIZED:
        advice = "allow it in the access lists of the brokers"
        return NotAuthorized(FAILED, log_reason=f"{operation}: Kafka answered {error.name()}; {advice}")
    kind = RebalanceInProgress if error.code() in _REBALANCING else ServiceUnavailable
    return kind(FAILED, log_reason=f"{operation}: Kafka answered {error.name()}; repeat it after a pause")


def outcome_unknown(operation: str, error: KafkaError | None = None) -> OutcomeUnknown:
    """The operation may have been applied, or may still be."""
    why = "did not answer in time" if error is None else f"failed with {error.name()}"
    return OutcomeUnknown(FAILED, log_reason=f"{operation}: Kafka {why}; it was applied, was not, or still will be")
