"""The checks of a whole schedule: the promises of delivery, and the records' invariants that a history can show.

What concerns one moment was checked by `history` at that moment; here is what only the final state shows.
"""

from collections.abc import Mapping, Sequence

import msgspec

from seriatim.client.store import OutboxEntry
from seriatim.domain import limits
from seriatim.domain.dead_letter import DeadLetterBody
from seriatim.domain.message import Message
from seriatim.domain.times import milliseconds
from seriatim.ports.event_log import Partition, Record
from seriatim.simulation.checks.history import CursorAdvance, WorldHistory
from seriatim.simulation.stores.tables import MemoryStore


class DeviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a device holds at the end: its messages by chat and sequence, and what it could not send."""

    name: str
    user_id: str
    ready: bool
    messages: Mapping[str, Mapping[int, Message]]
    stored_at: Mapping[tuple[str, int], float]
    delivered: Mapping[str, Sequence[int]]
    outbox: Sequence[OutboxEntry]


class FinalState(msgspec.Struct, frozen=True, kw_only=True):
    """The world after the quiet time."""

    history: WorldHistory
    store: MemoryStore
    devices: Sequence[DeviceReport]
    lag: Mapping[str, int]
    dead_letters: Sequence[Record]
    buffers_max: int
    buffer_limit: int


def check_final_state(state: FinalState) -> None:
    """Every violation goes into the history, the cause before its consequences."""
    prefix_exposure(state)
    effectively_once(state)
    counters_and_keys(state)
    client_order(state)
    cursors_cover_everything(state)
    no_delivery_to_nonmember(state)
    buffers_bounded(state)
    check_quiescence(state)


def check_quiescence(state: FinalState) -> None:
    """What was stored is published, what is published has arrived, and no send or sync is left waiting."""
    all_stored_published(state)
    dead_letters(state)
    quiescent_liveness(state)
    watermarks_catch_up(state)
    client_complete(state)


def prefix_exposure(state: FinalState) -> None:
    """What a reader was shown up to N is all there ever is up to N."""
    history = state.history
    for read in history.pages_read:
        page = read.page
        lost = history.lost.get(read.chat_id, {})
        shown = [message.sequence for message in page.messages if message.sequence not in lost]
        truth = [
            sequence
            for sequence in range(read.after + 1, page.through + 1)
            if isinstance(history.slots.get(read.chat_id, {}).get(sequence), Message)
        ]
        if shown != truth:
            missing = [sequence for sequence in truth if sequence not in shown]
            history.violate(
                "prefix_exposure",
                f"at {read.at:.3f} {read.user_id} read {read.chat_id} after #{read.after} and was "
                f"shown {shown} as all up to #{page.through}; {missing or 'others'} appeared later",
            )
            return


def effectively_once(state: FinalState) -> None:
    """One message per (chat, client_message_id), and the sender's own words."""
    history = state.history
    for chat_id, slots in history.slots.items():
        seen: dict[str, int] = {}
        for sequence, slot in slots.items():
            if not isinstance(slot, Message):
                continue
            key = slot.client_message_id
            if key in seen:
                history.violate("effectively_once", f"{chat_id} holds {key[:8]} at #{seen[key]} and #{sequence}")
            seen[key] = sequence
            drafts = history.sends.get((chat_id, key), [])
            if (slot.content, slot.sender_id) not in [(draft.content, draft.sender_id) for draft in drafts]:
                history.violate("effectively_once", f"{chat_id} #{sequence} is not what {slot.sender_id} sent")


def counters_and_keys(state: FinalState) -> None:
    """Counters at or above every message and every slot allocated; keys and messages agree (I5, I9-I11)."""
    history, store = state.history, state.store
    for chat_id, slots in history.slots.items():
        counter = store.counters.get(chat_id)
        if counter is None:
            history.violate("counter_must_exist", chat_id)
            continue
        highest = max(slots, default=0)
        if highest > counter.allocated:
            history.violate("sequence_monotonicity", f"{chat_id}: #{highest} filled, counter {counter.allocated}")
        if counter.published_through > counter.allocated:
            history.violate("counter_is_last_allocated", f"{chat_id}: published beyond the counter")
    for (chat_id, client_message_id), key in store.keys.items():
        slot = history.slots.get(chat_id, {}).get(key.sequence)
        if not isinstance(slot, Message) or (slot.message_id, slot.client_message_id) != (
            key.message_id,
            client_message_id,
        ):
            history.violate("idempotency_sequence_consistency", f"{chat_id} {client_message_id[:8]} at #{key.sequence}")
        lives_ms = 1000 * key.expires_at_s - milliseconds(key.created_at)
        if not 0 <= lives_ms - 1000 * limits.KEY_LIFETIME_S < 1000:
            history.violate("key_lifetime", f"{chat_id} {client_message_id[:8]} lives for {lives_ms / 1000:.3f} s")


def all_stored_published(state: FinalState) -> None:
    history = state.history
    for chat_id, slots in history.slots.items():
        for sequence, slot in slots.items():
            if isinstance(slot, Message) and sequence not in history.published.get(chat_id, {}):
                history.violate("all_stored_published", f"{chat_id} #{sequence} never reached the event log")
                return


def client_order(state: FinalState) -> None:
    """The application is handed each message once, in ascending order per chat."""
    for device in state.devices:
        for chat_id, sequences in device.delivered.items():
            if list(sequences) != sorted(dict.fromkeys(sequences)):
                state.history.violate("client_order", f"{device.name} was handed {chat_id} as {list(sequences)}")


def cursors_cover_everything(state: FinalState) -> None:
    """When a device said "I have all up to N", it had: anything less is lost for good, since it never asks again."""
    stored_at = {device.name: device.stored_at for device in state.devices}
    worst: dict[tuple[str, str], CursorAdvance] = {}
    for advance in state.history.cursor_advances:
        for sequence, slot in state.history.slots.get(advance.chat_id, {}).items():
            if sequence > advance.cursor or not isinstance(slot, Message):
                continue
            at = stored_at[advance.device].get((advance.chat_id, sequence))
            if at is None or at > advance.at:
                worst.setdefault((advance.device, advance.chat_id), advance)
    for (device, chat_id), advance in worst.items():
        state.history.violate(
            "client_complete",
            f"at {advance.at:.3f} {device} counted {chat_id} as complete up to #{advance.cursor}, and it was not",
        )


def no_delivery_to_nonmember(state: FinalState) -> None:
    """No user is shown a message that was allocated after the user's removal had committed."""
    history = state.history
    for shown in history.messages_shown:
        allocated_at = history.allocated_at.get(shown.chat_id, {}).get(shown.sequence)
        changes = history.roles.get((shown.chat_id, shown.user_id), [])
        if allocated_at is None:
            continue
        role = None
        member_since_allocation = False
        for at, new in changes:
            if at <= allocated_at:
                role = new
            elif at <= shown.at and new is not None:
                member_since_allocation = True
        if role is None and not member_since_allocation:
            history.violate(
                "no_delivery_to_nonmember",
                f"{shown.user_id} was shown {shown.chat_id} #{shown.sequence} at {shown.at:.3f}, allocated at "
                f"{allocated_at:.3f} when they were no member",
            )
            return


def buffers_bounded(state: FinalState) -> None:
    if state.buffers_max > state.buffer_limit:
        state.history.violate(
            "buffers_bounded", f"an outbound buffer held {state.buffers_max} frames; {state.buffer_limit} are allowed"
        )


def quiescent_liveness(state: FinalState) -> None:
    """After quiet time nothing is stuck: no unsent message, no unpublished chat, no lag, every device connected."""
    history = state.history
    for device in state.devices:
        if not device.ready:
            history.violate("quiescent_liveness", f"{device.name} is not ready after quiet time")
        for entry in device.outbox:
            if entry.failed_code is None:
                history.violate(
                    "quiescent_liveness", f"{device.name} still waits to send {entry.client_message_id[:8]}"
                )
            elif entry.failed_code == "INVALID_MESSAGE" and _copied(history, entry, device.user_id):
                continue
            elif entry.failed_code != "NOT_A_MEMBER":
                history.violate(
                    "no_silent_message_loss",
                    f"{device.name}: {entry.client_message_id[:8]} failed, {entry.failed_code}",
                )
            elif not history.was_removed(entry.chat_id, device.user_id):
                history.violate(
                    "no_silent_message_loss",
                    f"{device.name}: {entry.client_message_id[:8]} was refused as NOT_A_MEMBER; they always were one",
                )
    for chat_id, counter in state.store.counters.items():
        if counter.dirty_at_ms is not None:
            history.violate("quiescent_liveness", f"{chat_id} is still dirty: {counter}")
    for partition, lag in state.lag.items():
        if lag:
            history.violate("quiescent_liveness", f"{partition} has {lag} records that fanout did not commit")


def dead_letters(state: FinalState) -> None:
    """What cannot be read becomes a dead letter, once or more, and nothing else does (I38, I39)."""
    recorded: dict[tuple[Partition, int], None] = {}
    for record in state.dead_letters:
        metadata = msgspec.json.decode(record.value or b"", type=DeadLetterBody).dlq_metadata
        recorded[Partition(metadata.original_topic, metadata.original_partition), metadata.original_offset] = None
    for partition, offset in state.history.poison:
        if (partition, offset) not in recorded:
            state.history.violate(
                "poison_pill_bounded", f"{partition.topic}/{partition.number}@{offset} has no dead letter"
            )
    for partition, offset in recorded:
        if (partition, offset) not in state.history.poison:
            state.history.violate(
                "transient_not_dlq", f"{partition.topic}/{partition.number}@{offset} became a dead letter"
            )


def watermarks_catch_up(state: FinalState) -> None:
    """What every device of a member has stored is acknowledged in the end: acks may be late, not lost."""
    history = state.history
    for (chat_id, user_id), changes in history.roles.items():
        newest = history.newest.get(chat_id, 0)
        watermark = history.watermarks.get((user_id, chat_id), 0)
        if changes[-1][1] is not None and watermark < newest <= history.cursors.get((user_id, chat_id), 0):
            history.violate(
                "watermarks_catch_up", f"{user_id} has {chat_id} up to #{newest}; the watermark stayed at {watermark}"
            )


def client_complete(state: FinalState) -> None:
    """Every device of every current member holds exactly what the store holds, byte for byte."""
    history = state.history
    for device in state.devices:
        for (chat_id, user_id), changes in history.roles.items():
            if user_id != device.user_id or changes[-1][1] is None:
                continue
            held = device.messages.get(chat_id, {})
            for sequence, slot in sorted(history.slots.get(chat_id, {}).items()):
                if isinstance(slot, Message) and held.get(sequence) != slot:
                    what = "differs from" if sequence in held else "lacks"
                    history.violate("client_complete", f"{device.name} {what} {chat_id} #{sequence} after quiet time")
                    break


def _copied(history: WorldHistory, entry: OutboxEntry, user_id: str) -> bool:
    """Another sender used the same id in the same chat."""
    drafts = history.sends.get((entry.chat_id, entry.client_message_id), [])
    return any(draft.sender_id != user_id for draft in drafts)
