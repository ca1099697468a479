"""What the gRPC client and server report about themselves. The runtime turns it into metrics and log lines."""


class GrpcObserver:
    """Does nothing; override what you want to see."""

    def connected(self, address: str) -> None:
        """An ingest process takes drafts of this process."""

    def disconnected(self, address: str, why: str, unanswered: int) -> None:
        """It does not any more, and this many sends were answered with `OutcomeUnknown`."""

    def unreachable(self, address: str, why: str) -> None:
        """Dialling it failed; it is dialled again."""

    def delayed(self, seconds: float) -> None:
        """A batch was that much slower than others; its drafts have that much less time."""

    def call_failed(self, method: str, error: BaseException) -> None:
        """A bug was caught and answered as INTERNAL_ERROR."""
