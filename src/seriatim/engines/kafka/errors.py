"""What librdkafka reports, in our words. Its names of errors are shown: an operator can look them up."""

from confluent_kafka import KafkaError

from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable

# The coordinator does not know this member (any more): what it holds may be in other hands.
EXPELLED = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID)


def unavailable(operation: str, error: KafkaError) -> ServiceUnavailable:
    return ServiceUnavailable(f"{operation}: Kafka answered {error.name()}; repeat it after a pause")


def unknown(operation: str, error: KafkaError | None = None) -> OutcomeUnknown:
    """Nobody knows whether it happened, or whether it still will."""
    why = "did not answer in time" if error is None else f"failed with {error.name()}"
    return OutcomeUnknown(f"{operation}: Kafka {why}; it was applied, was not, or still will be")
