"""The rules of rows in every store engine: pure functions of rows and requests (docs/spec/data.md#writes).

Engines differ in how they keep rows, not in what a request may do to them.
"""

from collections.abc import Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import InternalError
from seriatim.ports.message_log import ChatCounter, Entry, Key

# Creation is a chat's first change of members: a version of 0 means that there is no such chat.
NEW_COUNTER = ChatCounter(allocated=0, published_through=0, published_message=0, members_version=1, dirty_at_ms=None)


def key_of(entry: Entry) -> Key:
    message = entry.message
    return Key(
        client_message_id=message.client_message_id,
        message_id=message.message_id,
        sequence=message.sequence,
        sender_id=message.sender_id,
        content_sha256=entry.content_sha256,
        created_at=message.created_at,
        expires_at_s=entry.expires_at_s,
    )


def grown(row: ChatCounter, allocated: int, now_ms: int) -> ChatCounter:
    """More is allocated than published from here on, so the chat is dirty: since now, or since longer."""
    dirty_at_ms = now_ms if row.dirty_at_ms is None else row.dirty_at_ms
    return msgspec.structs.replace(row, allocated=allocated, dirty_at_ms=dirty_at_ms)


def allocated(
    row: ChatCounter, count: int, *, published_through: int, published_message: int | None, now_ms: int
) -> ChatCounter:
    """The counter row after an allocation by an owner who knows at least as much of the publishing as the row does."""
    marked = msgspec.structs.replace(
        row,
        published_through=published_through,
        published_message=published_message,
        # All that was allocated before is out: only what is allocated now is unpublished.
        dirty_at_ms=None if row.allocated <= published_through else row.dirty_at_ms,
    )
    return grown(marked, row.allocated + count, now_ms)


def flushed(row: ChatCounter | None, *, published_through: int, published_message: int | None) -> ChatCounter | None:
    """The counter row of a chat that is published to its end; None if it is not, or not by this owner's knowledge."""
    if row is None or row.allocated != published_through or row.published_through > published_through:
        return None
    return msgspec.structs.replace(
        row, published_through=published_through, published_message=published_message, dirty_at_ms=None
    )


def recovered(
    *, allocated: int, published_through: int, published_message: int | None, members_version: int, now_ms: int
) -> ChatCounter:
    return ChatCounter(
        allocated=allocated,
        published_through=published_through,
        published_message=published_message,
        members_version=members_version,
        dirty_at_ms=now_ms if published_through < allocated else None,
    )


# --- requests that only a bug can produce -----------------------------------------------------------------------------


def check_commit(
    chat_id: str,
    entries: Sequence[Entry],
    senders: Sequence[str],
    token: str,
    *,
    items_max: int,
) -> None:
    """What a real store rejects before it reads any row."""
    messages = [entry.message for entry in entries]
    items = 2 * len(messages) + len(senders)
    if not messages or items > items_max:
        raise InternalError(f"persist: {len(messages)} entries make {items} items")
    if not 1 <= len(token) <= limits.TOKEN_CHARS_MAX:
        raise InternalError(f"persist: a token of {len(token)} characters")
    check_distinct("slots of a transaction", [each.sequence for each in messages])
    check_distinct("keys of a transaction", [each.client_message_id for each in messages])
    check_distinct("senders of a transaction", senders)
    checked = frozenset(senders)
    for each in messages:
        if each.chat_id != chat_id or each.sequence < 1 or each.sender_id not in checked:
            raise InternalError(f"persist: {each.message_id} has a foreign chat, no slot, or an unchecked sender")


def check_allocation(count: int) -> None:
    if count < 1:
        raise InternalError(f"allocate: {count} slots requested")


def check_slot(sequence: int) -> None:
    if sequence < 1:
        raise InternalError(f"seal: there is no slot {sequence}")


def check_page(limit: int) -> None:
    if not 1 <= limit <= limits.READ_SLOTS_MAX:
        raise InternalError(f"read: a limit of {limit} slots")


def check_batch(rows: int, *, most: int = limits.LOOKUP_KEYS_MAX) -> None:
    if rows > most:
        raise InternalError(f"{rows} rows in one batch read")


def check_distinct(what: str, values: Sequence[str] | Sequence[int] | Sequence[tuple[str, str]]) -> None:
    if len(set(values)) != len(values):
        raise InternalError(f"the {what} are not distinct")
