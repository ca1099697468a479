"""What the wire between processes tells whoever watches."""


class RpcObserver:
    """Does nothing; override what you want to see."""

    def joined(self, address: str) -> None:
        """An ingest process takes our drafts."""

    def left(self, address: str, why: str, unanswered: int) -> None:
        """It does not any more, and so many sends were answered with "unknown"."""

    def unreachable(self, address: str, why: str) -> None:
        """Dialling it failed; it is dialled again."""

    def late(self, seconds: float) -> None:
        """A batch was so much slower than others; its drafts have so much less time."""

    def failed(self, method: str, error: BaseException) -> None:
        """A bug of ours was caught and answered as INTERNAL_ERROR."""
