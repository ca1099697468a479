"""All that is stored, for checkers: it is read and never written, beside servers that go on working.

An iteration has no deadline of its own; it raises `ServiceUnavailable` when the store does not answer. Its rows come
as they were stored, right or wrong: to judge them is the checker's work.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec

from seriatim.domain.account import Code, Session, User
from seriatim.domain.chat import Chat, Membership
from seriatim.domain.message import Message, Slot
from seriatim.ports.event_log import Record
from seriatim.ports.message_log import ChatCounter, Key, Watermark


class Counter(msgspec.Struct, frozen=True):
    chat_id: str
    counter: ChatCounter


class Filled(msgspec.Struct, frozen=True):
    """A filled slot: `sequence` is where it lies, `slot` what it says of itself."""

    sequence: int
    slot: Slot


class StoredKey(msgspec.Struct, frozen=True):
    """An idempotency key: `chat_id` and `client_message_id` are where it lies, `key` what it says of itself."""

    chat_id: str
    client_message_id: str
    key: Key


class StoredWatermark(msgspec.Struct, frozen=True):
    user_id: str
    chat_id: str
    watermark: Watermark


class UserChat(msgspec.Struct, frozen=True):
    """A row of the index by which a user's chats are found."""

    user_id: str
    chat_id: str


class Pair(msgspec.Struct, frozen=True):
    """A row of the index by which the direct chat of two users is found."""

    pair_key: str
    chat_id: str


class Phone(msgspec.Struct, frozen=True):
    """The row that makes a phone number belong to one user."""

    phone_hash: str
    user_id: str


class UserSession(msgspec.Struct, frozen=True):
    """A row of the index by which a user's sessions are found."""

    user_id: str
    session_id: str


class StoredRows(Protocol):
    """All rows of the store. What one call shows may be older than what a later call shows, never newer."""

    async def refresh(self) -> None:
        """All that was committed before this call is seen by those that follow."""
        ...

    async def estimated_rows(self) -> int:
        """About how many rows there are, for a progress bar. It may be far off."""
        ...

    # --- every row, each once -----------------------------------------------------------------------------------------

    def chats(self) -> AsyncIterator[Chat]: ...

    def counters(self) -> AsyncIterator[Counter]: ...

    def chats_with_slots(self) -> AsyncIterator[str]:
        """Every chat of which a slot is filled, whether or not there is such a chat."""
        ...

    def memberships(self) -> AsyncIterator[Membership]:
        """All members of one chat, then those of the next."""
        ...

    def user_chats(self) -> AsyncIterator[UserChat]: ...

    def pairs(self) -> AsyncIterator[Pair]: ...

    def keys(self) -> AsyncIterator[StoredKey]: ...

    def watermarks(self) -> AsyncIterator[StoredWatermark]: ...

    def users(self) -> AsyncIterator[User]: ...

    def phones(self) -> AsyncIterator[Phone]: ...

    def sessions(self) -> AsyncIterator[Session]: ...

    def user_sessions(self) -> AsyncIterator[UserSession]:
        """All sessions of one user, then those of the next."""
        ...

    def codes(self) -> AsyncIterator[Code]: ...

    def slots(self, chat_id: str, *, after: int = -1) -> AsyncIterator[Filled]:
        """The filled slots of a chat above `after`, ascending."""
        ...

    def members(self, chat_id: str) -> AsyncIterator[Membership]: ...

    # --- one row --------------------------------------------------------------------------------------------------

    async def chat(self, chat_id: str) -> Chat | None: ...

    async def counter(self, chat_id: str) -> ChatCounter | None: ...

    async def is_listed_dirty(self, chat_id: str, *, dirty_at_ms: int) -> bool:
        """Whether the index of unpublished chats names this one, since that time. It may lag behind the counter."""
        ...

    async def membership(self, chat_id: str, user_id: str) -> Membership | None: ...

    async def has_user_chat(self, user_id: str, chat_id: str) -> bool:
        """Whether the index of the user's chats names this one."""
        ...

    async def pair(self, pair_key: str) -> str | None:
        """The chat that the index names for the two."""
        ...

    async def slot(self, chat_id: str, sequence: int) -> Slot | None: ...

    async def newest_slot(self, chat_id: str) -> int:
        """The highest filled slot, message or tombstone, 0 if there is none."""
        ...

    async def newest_message(self, chat_id: str, *, at_most: int) -> Message | None:
        """The message with the highest sequence at or below `at_most`."""
        ...

    async def key(self, chat_id: str, client_message_id: str) -> Key | None: ...

    async def user(self, user_id: str) -> User | None: ...

    async def phone(self, phone_hash: str) -> str | None:
        """The user to whom the phone belongs."""
        ...

    async def session(self, session_id: str) -> Session | None: ...

    async def has_user_session(self, user_id: str, session_id: str) -> bool:
        """Whether the index of the user's sessions names this one."""
        ...


class StoredRecords(Protocol):
    """All records of the event log."""

    async def topics(self) -> Mapping[str, int]:
        """The number of partitions of each topic; empty where no event log is to be read."""
        ...

    def records(self, topic: str) -> AsyncIterator[Record]:
        """The records of a topic, partition by partition, each in offset order; at least those of before the call."""
        ...
