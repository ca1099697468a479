"""What becomes of a draft, decided without awaiting: by its key and role, or by why a transaction was cancelled."""

from collections.abc import Sequence

import msgspec

from seriatim.domain.errors import InvalidMessage, NotAMember, SeriatimError
from seriatim.domain.message import Draft, Message, Receipt
from seriatim.durability.records import duplicate_receipt
from seriatim.ports.message_log import Cancelled, Entry, Key, KeyTaken, Lookup, SenderGone, SlotTaken


class Fresh(msgspec.Struct, frozen=True):
    """Not stored yet; the sender may."""


_FRESH = Fresh()


class Hit(msgspec.Struct, frozen=True):
    """Stored before, by this sender: the same receipt again, once it is published."""

    receipt: Receipt


class Refusal(msgspec.Struct, frozen=True):
    error: SeriatimError


Verdict = Fresh | Hit | Refusal


def judge(draft: Draft, digest: str, found: Lookup, now_s: int) -> Verdict:
    """The table of docs/spec/data.md#accepting-a-message. An expired key is absent, here and in the store."""
    key = found.keys.get(draft.client_message_id)
    if key is not None and not expired(key, now_s):
        return judge_key(draft, digest, key, member=draft.sender_id in found.roles)
    if draft.sender_id not in found.roles:
        return Refusal(NotAMember("you are not a member of this chat, or it does not exist"))
    return _FRESH


def judge_key(draft: Draft, digest: str, key: Key, *, member: bool) -> Hit | Refusal:
    """A key answers its own sender, even one removed since; to others it shows only that the id is taken."""
    if key.sender_id == draft.sender_id:
        return Hit(duplicate_receipt(key, digest))
    if not member:
        return Refusal(NotAMember("you are not a member of this chat, or it does not exist"))
    return Refusal(
        InvalidMessage(
            "another member used this client_message_id; choose a new one",
            field="client_message_id",
            reason="client_message_id_in_use",
        )
    )


def expired(key: Key, now_s: int) -> bool:
    return key.expires_at_s <= now_s


class CancellationOutcome(msgspec.Struct, frozen=True):
    """A cancelled transaction, read by index: settled drafts, lost slots, and the foreign messages in them."""

    settled: dict[int, Hit | Refusal]
    lost_slots: tuple[int, ...]
    collisions: tuple[Message, ...]


def judge_cancelled(
    cancelled: Cancelled, entries: Sequence[Entry], drafts: Sequence[tuple[Draft, str]]
) -> CancellationOutcome:
    """Only the key's condition means "duplicate"; a taken slot means "allocate again"; a lost role means "refuse"."""
    gone = [cause.sender_id for cause in cancelled.causes if isinstance(cause, SenderGone)]
    settled: dict[int, Hit | Refusal] = {
        index: Refusal(NotAMember("you were removed from this chat"))
        for index, (draft, _) in enumerate(drafts)
        if draft.sender_id in gone
    }
    lost: list[int] = []
    collisions: list[Message] = []
    for cause in cancelled.causes:
        match cause:
            case KeyTaken(index, key):
                draft, digest = drafts[index]
                settled[index] = judge_key(draft, digest, key, member=draft.sender_id not in gone)
            case SlotTaken(index, holder):
                lost.append(entries[index].message.sequence)
                if isinstance(holder, Message):
                    collisions.append(holder)
    return CancellationOutcome(settled, tuple(lost), tuple(collisions))
