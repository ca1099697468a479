"""What the durability plane reports to its operators. The runtime turns it into metrics and pages."""

from collections.abc import Mapping, Sequence

from seriatim.domain.errors import SeriatimError


class DurabilityObserver:
    """Does nothing; override what you want to see. `traces`: `traced` is wanted, at a cost for every message."""

    traces = False

    def traced(self, step: str, chat_id: str, sequence: int, message_id: str) -> None:
        """What became of one message: allocated, persisted, published. Called only while `traces`."""

    def store_failed(self, operation: str, chat_id: str, error: SeriatimError) -> None:
        """The store refused this operation, or did not answer. `chat_id` is empty if it was about many chats."""

    def publish_failed(self, chat_id: str, sequence: int, message_id: str, error: SeriatimError) -> None:
        """Stored messages from this one on did not get into the event log; they are not acknowledged yet."""

    def breaker_changed(self, part: str, state: str, reason: str) -> None:
        """Of the store or of the event log ("events"). While it is open, sends are refused at once."""

    def allocated(self, count: int, seconds: float) -> None:
        """Slots were allocated, in this time."""

    def persisted(self, stored: Mapping[str, int]) -> None:
        """So many messages of these chats were stored, those of a chat together."""

    def answered(self, seconds: Sequence[float]) -> None:
        """New messages were acknowledged, each this long after it was admitted."""

    def hit(self) -> None:
        """A retry was recognised by its key."""

    def refused_by_store(self, kind: str) -> None:
        """The store throttled us, or a transaction met another one."""

    def published(self, count: int, seconds: float) -> None:
        """Events were appended to the event log, in this time."""

    def republished(self, count: int) -> None:
        """Messages of another owner, or of an earlier failed attempt, were published."""

    def sealed(self, chat_id: str, sequence: int) -> None:
        """A slot stayed empty and was closed with a tombstone."""

    def duplicate_sequence(self, chat_id: str, sequence: int) -> None:
        """SEV-1: a slot we had allocated already held a message. Nothing was overwritten."""

    def counter_missing(self, chat_id: str) -> None:
        """SEV-1: the chat halts until its counter is repaired."""

    def row_unreadable(self, chat_id: str, error: SeriatimError) -> None:
        """A row of this chat cannot be read, and `error` says why. What needs the row fails until it is mended."""

    def cursor_beyond_end(self, chat_id: str, cursor: int, end: int) -> None:
        """A member's device claims to have this chat up to `cursor`, and it ends at `end`: an old copy was restored?"""

    def reconciled(self, chat_id: str) -> None:
        """A chat left unpublished by its owner was settled."""

    def failed(self, where: str, error: BaseException) -> None:
        """A bug was caught and answered as INTERNAL_ERROR."""
