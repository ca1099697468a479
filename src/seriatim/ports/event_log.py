"""The event log: what happened, in order per chat, after it was stored (docs/spec/data.md#event-log)."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from seriatim.domain.events import MessagePersisted

MESSAGES = "messages.persisted"
MEMBERSHIPS = "memberships.changed"
CHATS = "chats.created"
DEAD_LETTERS = "dead_letters"

Headers = tuple[tuple[str, bytes], ...]


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """`decoded`: the value as its writer built it. A log need not keep it: every reader can decode the value."""

    key: str
    value: bytes
    headers: Headers = ()
    decoded: MessagePersisted | None = None


class Partition(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    topic: str
    number: int


class Record(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An event at its place. Key and value are what the log holds, valid or not.

    `decoded`: the value as its writer built it, if that was in this process and not long ago; else None.
    """

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    decoded: MessagePersisted | None = None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A record that cannot be handled, and why."""

    record: Record
    reason: str
    attempts: int
    consumer_group: str
    consumer_id: str
    failed_at_ms: int


class EventWriter(Protocol):
    async def append(self, topic: str, events: Sequence[Event], *, timeout_s: float) -> None:
        """Returns once all events survive the loss of a broker, in this order, in the partition of their key.

        All events of one call have one key. After `OutcomeUnknown` a prefix of them may be there, or arrive later.
        """
        ...


class DeadLetterWriter(Protocol):
    async def write(self, dead_letter: DeadLetter, *, timeout_s: float) -> None:
        """Returns once the dead letter survives the loss of a broker."""
        ...


class Fenced(Exception):
    """The partition belongs to another consumer now; nothing was committed."""


class RebalanceListener(Protocol):
    def assigned(self, partitions: Sequence[Partition]) -> None:
        """These are ours from their committed offsets on. None of them is paused, whatever was paused before."""
        ...

    async def revoked(self, partitions: Sequence[Partition]) -> None:
        """Called before others get them: the last chance to finish a record and commit."""
        ...

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Others have them already: forget them, commit nothing."""
        ...


class EventReader(Protocol):
    """One consumer of a group. Each partition has one reader at a time; a new reader starts at the committed offset."""

    async def open(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Joins the group. After `ServiceUnavailable` it may be called again."""
        ...

    async def poll(self, *, limit: int) -> Sequence[Record]:
        """Waits for records of our partitions that are not paused; per partition in offset order, none left out.

        Rebalances happen inside this call: who does not poll, does not take part.
        """
        ...

    async def commit(self, partition: Partition, next_offset: int, *, timeout_s: float) -> None:
        """The group's next reader begins there. Raises `Fenced` when the partition is no longer ours.

        After a crash of the log itself it may begin a little before, never beyond: records come twice, none is left
        out.
        """
        ...

    def seek(self, partition: Partition, offset: int) -> None:
        """The next poll begins there."""
        ...

    def pause(self, partition: Partition) -> None: ...

    def resume(self, partition: Partition) -> None: ...

    async def close(self) -> None:
        """Leaves the group; its partitions go to the others at once."""
        ...
