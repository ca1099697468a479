"""What librdkafka reports, in our words. Its names of errors are shown: an operator can look them up."""

from confluent_kafka import KafkaError

from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable

# The coordinator does not know this member (any more): what it holds may be in other hands.
EXPELLED = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID)

# The group is between two generations, and the answer about the new one has not reached this member yet.
_REBALANCING = (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS)
_NOT_ALLOWED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


class NotAllowed(ServiceUnavailable):
    """Kafka knows who asks, and does not allow it: it is a matter of its access lists."""


class Rebalancing(ServiceUnavailable):
    """Kafka did nothing, because the group is being rebalanced. The same request may succeed a moment later."""


def unavailable(operation: str, error: KafkaError) -> ServiceUnavailable:
    if error.code() in _NOT_ALLOWED:
        return NotAllowed(f"{operation}: Kafka answered {error.name()}; allow it in the access lists of the brokers")
    kind = Rebalancing if error.code() in _REBALANCING else ServiceUnavailable
    return kind(f"{operation}: Kafka answered {error.name()}; repeat it after a pause")


def unknown(operation: str, error: KafkaError | None = None) -> OutcomeUnknown:
    """Nobody knows whether it happened, or whether it still will."""
    why = "did not answer in time" if error is None else f"failed with {error.name()}"
    return OutcomeUnknown(f"{operation}: Kafka {why}; it was applied, was not, or still will be")
