"""Where is a message? Each step of its delivery, read where the step is recorded. Its content is never shown.

Rows are read first, then the event log, then watermarks: a message that moves on meanwhile seems further, never lost.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from seriatim.domain import events, limits
from seriatim.domain.chat import Chat, Membership
from seriatim.domain.errors import SeriatimError
from seriatim.domain.events import BadEvent, MessagePersisted
from seriatim.domain.message import Message, Sealed, Slot
from seriatim.domain.sharding import partition as partition_of
from seriatim.domain.times import iso, milliseconds
from seriatim.ports.directory import Registration
from seriatim.ports.event_log import MESSAGES, Partition, Record
from seriatim.ports.event_trail import EventTrail
from seriatim.ports.inspection import StoredRows
from seriatim.ports.message_log import ChatCounter, Watermark

Pairs = Sequence[tuple[str, str]]
Watermarks = Callable[[Pairs], Awaitable[Mapping[tuple[str, str], Watermark]]]
Connections = Callable[[Sequence[str]], Awaitable[Mapping[str, Sequence[Registration]]]]


class TraceStep(msgspec.Struct, frozen=True):
    """`done` is None where it cannot be known any more."""

    name: str
    done: bool | None
    text: str


class MemberTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the chat: the watermark of their devices, and where they are connected.

    `connections` is None when it is not known.
    """

    user_id: str
    role: str
    watermark: int
    delivered: bool
    connections: tuple[Registration, ...] | None


class MessageTrace(msgspec.Struct, frozen=True, kw_only=True):
    """`arrived`: everything that the servers can do for this message is done."""

    chat_id: str
    sequence: int | None
    steps: tuple[TraceStep, ...]
    members: tuple[MemberTrace, ...]
    arrived: bool
    advice: str


class MessageTracer:
    """`trail` is None where no event log is to be read, `connections` where it is not known who is connected."""

    def __init__(
        self,
        rows: StoredRows,
        trail: EventTrail | None,
        watermarks: Watermarks,
        connections: Connections | None,
        *,
        group: str,
    ) -> None:
        self._rows = rows
        self._trail = trail
        self._watermarks = watermarks
        self._connections = connections
        self._group = group

    async def by_key(self, chat_id: str, client_message_id: str) -> MessageTrace:
        key = await self._rows.key(chat_id, client_message_id)
        if key is not None:
            return await self.by_sequence(chat_id, key.sequence)
        steps = [
            await self._chat_step(chat_id),
            TraceStep("stored", False, f"no message of this chat came as {client_message_id}"),
        ]
        advice = (
            "Nothing with this id was ever stored here, or it was more than 7 days ago. If a client shows it as sent, "
            "ask for its sequence; else it still waits on the client, or was refused: check the errors of the client."
        )
        return MessageTrace(
            chat_id=chat_id, sequence=None, steps=tuple(steps), members=(), arrived=False, advice=advice
        )

    async def by_sequence(self, chat_id: str, sequence: int) -> MessageTrace:
        steps = [await self._chat_step(chat_id)]
        counter = await self._rows.counter(chat_id)
        slot = await self._rows.slot(chat_id, sequence)
        steps.append(_allocated(counter, sequence))
        steps.append(_stored(slot))
        if isinstance(slot, Message):
            steps += await self._published(slot, counter)
        members = await self._members(chat_id, sequence)
        arrived = isinstance(slot, Message) and all(step.done is not False for step in steps)
        return MessageTrace(
            chat_id=chat_id,
            sequence=sequence,
            steps=tuple(steps),
            members=members,
            arrived=arrived,
            advice=_advice(steps, slot, members),
        )

    async def _chat_step(self, chat_id: str) -> TraceStep:
        chat = await self._rows.chat(chat_id)
        return TraceStep("chat", chat is not None, "there is no such chat" if chat is None else _chat_text(chat))

    async def _published(self, message: Message, counter: ChatCounter | None) -> list[TraceStep]:
        through = 0 if counter is None else counter.published_through
        marked = message.sequence <= through
        mark = f"published through {through}"
        if self._trail is None:
            return [TraceStep("published", marked, f"{mark}; the event log was not read")]
        place = Partition(MESSAGES, partition_of(message.chat_id, await self._trail.partitions(MESSAGES)))
        record = await self._event(self._trail, place, message)
        if record is None:
            gone = "its event is in the log no more" if marked else "there is no event of it in the log"
            return [TraceStep("published", None if marked else False, f"{gone}; {mark}")]
        where = f"{place.topic}/{place.number} at offset {record.offset}, {iso(record.timestamp_ms)}"
        return [TraceStep("published", True, f"{where}; {mark}"), await self._fanned_out(self._trail, record)]

    async def _event(self, trail: EventTrail, place: Partition, message: Message) -> Record | None:
        """Its first appearance: what comes later is a repetition, and is recognised as one."""
        since_ms = milliseconds(message.created_at) - 1000 * limits.TRACE_CLOCK_SKEW_S
        async for record in trail.events(place, since_ms=since_ms):
            if _is_event_of(record, message):
                return record
        return None

    async def _fanned_out(self, trail: EventTrail, record: Record) -> TraceStep:
        next_offset = await trail.next_offset(self._group, record.partition)
        if next_offset is None:
            return TraceStep("fanned out", False, f"{self._group} has handled nothing of this partition yet")
        text = f"{self._group} goes on at offset {next_offset}"
        return TraceStep("fanned out", next_offset > record.offset, text)

    async def _members(self, chat_id: str, sequence: int) -> tuple[MemberTrace, ...]:
        members: list[Membership] = [each async for each in self._rows.members(chat_id)]
        if not members:
            return ()
        watermarks = await self._watermarks([(each.user_id, chat_id) for each in members])
        connected = await self._connected([each.user_id for each in members])
        found: list[MemberTrace] = []
        for each in members:
            watermark = watermarks.get((each.user_id, chat_id), Watermark(0, 0)).sequence
            found.append(
                MemberTrace(
                    user_id=each.user_id,
                    role=each.role.value,
                    watermark=watermark,
                    delivered=watermark >= sequence,
                    connections=None if connected is None else tuple(connected.get(each.user_id, ())),
                )
            )
        return tuple(found)

    async def _connected(self, user_ids: Sequence[str]) -> Mapping[str, Sequence[Registration]] | None:
        if self._connections is None:
            return None
        try:
            return await self._connections(user_ids)
        except SeriatimError:
            return None  # the rest of the answer is worth having without it


def _chat_text(chat: Chat) -> str:
    return f"{chat.chat_type.value} of {chat.member_count}, since {chat.created_at}"


def _allocated(counter: ChatCounter | None, sequence: int) -> TraceStep:
    if counter is None:
        return TraceStep("allocated", False, "the counter of this chat is missing")
    return TraceStep("allocated", sequence <= counter.allocated, f"the counter is {counter.allocated}")


def _stored(slot: Slot | None) -> TraceStep:
    match slot:
        case Message():
            size = len(slot.content.encode())
            who = f"by {slot.sender_id}, {size} bytes of {slot.content_type}"
            return TraceStep(
                "stored", True, f"{slot.created_at} {who}, as {slot.message_id}, key {slot.client_message_id}"
            )
        case Sealed():
            return TraceStep("stored", False, f"{slot.created_at} closed with a tombstone: it never held a message")
    return TraceStep("stored", False, "nothing is there")


def _is_event_of(record: Record, message: Message) -> bool:
    if record.key != message.chat_id.encode():
        return False
    try:
        event = events.decode(record.key, record.value)
    except BadEvent:
        return False
    return isinstance(event, MessagePersisted) and event.message.message_id == message.message_id


def _advice(steps: Sequence[TraceStep], slot: Slot | None, members: Sequence[MemberTrace]) -> str:
    stopped = next((step.name for step in steps if step.done is False), None)
    if stopped == "stored" and isinstance(slot, Sealed):
        return "No message has this number and none ever will: its send failed, and was repeated under another number."
    if stopped is not None:
        return _NEXT[stopped]
    without = [each for each in members if not each.delivered]
    if not without:
        return "Every member has it."
    offline = sum(each.connections == () for each in without)
    return (
        f"The servers have done their part. {len(without)} of {len(members)} members have not said that they have it, "
        f"{offline} of these are not connected: a device that comes back syncs it, one that is connected is sent what "
        "it lacks within a minute."
    )


_NEXT = {
    "chat": "Check the id: it is on every message, and in the address of REST calls.",
    "allocated": "This number was not allocated yet. If the counter is missing: seriatim counters repair --chat ID.",
    "stored": "The number was allocated, and nothing is stored: within seconds it is used, or sealed with a tombstone.",
    "published": "It is stored and not yet published: any ingest process publishes it within ten seconds. If not, "
    "check the event log.",
    "fanned out": "It is in the event log, and fanout has not handled it: check its lag, and whether it runs. "
    "Clients find the message without it, within a minute or when they sync.",
}
