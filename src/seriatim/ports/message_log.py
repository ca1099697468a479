"""The authority for messages: slots, idempotency keys, counters, watermarks (W1-W4, W20, W21)."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from seriatim.domain.chat import Role
from seriatim.domain.message import Message, Slot


class Key(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An idempotency key: which message this (chat, client_message_id) became, and whose it is."""

    client_message_id: str
    message_id: str
    sequence: int
    sender_id: str
    content_sha256: str
    created_at: str
    expires_at_s: int


class ChatCounter(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A chat's counter row. Every message at or below `published_through` is in the event log.

    `published_message` is the last of those messages: 0 when there is none, None when its writer did not know.
    """

    allocated: int
    published_through: int
    published_message: int | None
    members_version: int
    dirty_at_ms: int | None


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """Present keys (expired ones too), current roles, and the counter row if it is there."""

    keys: Mapping[str, Key]
    roles: Mapping[str, Role]
    counter: ChatCounter | None


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """Slots `first..last`, ours alone to fill, and the membership version they were allocated under."""

    first: int
    last: int
    members_version: int


class PublishedAhead(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was allocated: another owner has published further than we knew."""

    published_through: int
    published_message: int | None


class Entry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message and what its key must say."""

    message: Message
    content_sha256: str
    expires_at_s: int


class KeyTaken(msgspec.Struct, frozen=True):
    index: int
    key: Key


class SlotTaken(msgspec.Struct, frozen=True):
    index: int
    holder: Slot


class SenderGone(msgspec.Struct, frozen=True):
    sender_id: str


class Cancelled(msgspec.Struct, frozen=True):
    """Nothing was written; each failed condition by the index of its entry, with what stood in the way."""

    causes: tuple[KeyTaken | SlotTaken | SenderGone, ...]


class SlotPage(msgspec.Struct, frozen=True):
    """Filled slots in the order asked for, holes left out. `more`: the store has not reached the end of the chat."""

    slots: tuple[Slot, ...]
    more: bool


class DirtyChat(msgspec.Struct, frozen=True):
    chat_id: str
    dirty_at_ms: int


class Watermark(msgspec.Struct, frozen=True):
    """Up to where a user's devices have received a chat, and since when."""

    sequence: int
    updated_at_ms: int


class DeliveryState(Protocol):
    """What the REST edge may read here; a handle of this type cannot write."""

    async def newest_message(self, chat_id: str, *, at_most: int, timeout_s: float) -> int:
        """The highest sequence at or below `at_most` that holds a message, 0 if there is none."""
        ...

    async def watermarks(
        self, pairs: Sequence[tuple[str, str]], *, timeout_s: float
    ) -> Mapping[tuple[str, str], Watermark]:
        """The watermarks of (user, chat) pairs as of now; pairs without one are left out."""
        ...


class MessageLog(DeliveryState, Protocol):
    """Slots are written once, keys once until they expire; nothing here overwrites."""

    @property
    def transaction_items_max(self) -> int:
        """How much one `persist` takes: 2 for each entry and 1 for each sender. A `lookup` takes the same drafts."""
        ...

    async def lookup(
        self, chat_id: str, client_message_ids: Sequence[str], user_ids: Sequence[str], *, timeout_s: float
    ) -> Lookup:
        """Keys, roles and the counter row as of now: whatever was committed before the call is seen."""
        ...

    async def allocate(
        self,
        chat_id: str,
        count: int,
        *,
        published_through: int,
        published_message: int | None,
        now_ms: int,
        timeout_s: float,
    ) -> Allocation | PublishedAhead:
        """Concurrent allocations get distinct slots, each call a contiguous range above all earlier ones.

        Nothing that is written afterwards survives a crash without it.
        Raises `published_through` to ours, with `published_message`, and marks the chat dirty since its first
        unpublished allocation.
        Another owner ahead of `published_through`: allocates nothing and says so.
        No counter row: raises `CounterMissing` and writes nothing.
        """
        ...

    async def persist(
        self,
        chat_id: str,
        entries: Sequence[Entry],
        senders: Sequence[str],
        *,
        token: str,
        now_s: int,
        timeout_s: float,
    ) -> Cancelled | None:
        """Returns None once all entries are stored; else nothing was written.

        Nothing that is written afterwards, here or in the event log, survives a crash without them.
        A key that is there and not expired, a slot that is filled, or a sender who is no member cancels all of it.
        A query may see some of the entries before the others.
        """
        ...

    async def seal(self, chat_id: str, sequence: int, *, created_at: str, timeout_s: float) -> Slot:
        """Fills an empty slot with a tombstone. Returns what the slot holds: this tombstone, or what came first."""
        ...

    async def read(self, chat_id: str, *, after: int, limit: int, timeout_s: float) -> SlotPage:
        """Filled slots above `after`, ascending, at most `limit`; whatever was committed before the call is seen."""
        ...

    async def read_back(self, chat_id: str, *, before: int, limit: int, timeout_s: float) -> SlotPage:
        """Filled slots below `before`, descending, at most `limit`; whatever was committed before the call is seen."""
        ...

    async def counters(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, ChatCounter]:
        """Counter rows as of now; chats without one are left out. If one cannot be read: raises `RowUnreadable`."""
        ...

    async def flush(
        self, chat_id: str, *, published_through: int, published_message: int | None, timeout_s: float
    ) -> bool:
        """Marks the chat clean if every allocated slot is at or below `published_through`; says whether it did."""
        ...

    async def dirty(self, *, before_ms: int, limit: int, timeout_s: float) -> Sequence[DirtyChat]:
        """Chats dirty since before `before_ms`, oldest first. May lag behind: a hint, not a truth."""
        ...

    async def role(self, chat_id: str, user_id: str, *, timeout_s: float) -> Role | None:
        """The user's role as of now, None for a user who is not a member."""
        ...

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, now_ms: int, timeout_s: float) -> bool:
        """Raises the user's watermark to `sequence`; never lowers it. Says whether it moved."""
        ...

    async def watermark(self, user_id: str, chat_id: str, *, timeout_s: float) -> int:
        """The user's watermark as of now, 0 if there is none."""
        ...


class CounterRepair(Protocol):
    """Break-glass writes of the repair command (W20, W21) and the reads they rest on."""

    async def newest_slot(self, chat_id: str, *, timeout_s: float) -> int:
        """The highest filled slot, message or tombstone, 0 if there is none."""
        ...

    async def highest_watermark(self, chat_id: str, *, timeout_s: float) -> int:
        """The highest watermark of the chat, those of former members included, 0 if there is none."""
        ...

    async def recover_counter(
        self,
        chat_id: str,
        *,
        allocated: int,
        published_through: int,
        published_message: int | None,
        members_version: int,
        now_ms: int,
        timeout_s: float,
    ) -> bool:
        """Creates the missing counter row with audit fields, dirty if anything is unpublished.

        An existing row stays untouched, and False is returned.
        """
        ...

    async def raise_counter(self, chat_id: str, *, allocated: int, now_ms: int, timeout_s: float) -> bool:
        """Raises the counter; never lowers it. Says whether it moved."""
        ...
