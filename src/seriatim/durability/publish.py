"""Publishing by the prefix rule: n goes out only after everything below n is known to be out.

So the first occurrences in the event log are in sequence order, however many publishers there are. Repetitions are
allowed: an event's id derives from its message's, so a reader recognises them (docs/spec/delivery.md#publishing).
"""

from collections.abc import Mapping, Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import Conflict, OutcomeUnknown, SeriatimError, ServiceUnavailable, Throttled
from seriatim.domain.message import Message, Sealed, Slot
from seriatim.domain.times import iso
from seriatim.durability.deadline import Deadline, retry_refused
from seriatim.durability.observer import DurabilityObserver
from seriatim.durability.records import new_event, republished
from seriatim.durability.stable_prefix import PrefixReader
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import MESSAGES, Event, EventWriter
from seriatim.ports.message_log import MessageLog

NO_CONNECTION = ""  # origin of a message read back from the store: no connection is waiting for it, so none is skipped


class PublishItem(msgspec.Struct, frozen=True, kw_only=True):
    """A filled slot on its way to the event log."""

    slot: Slot
    members_version: int
    origin_connection_id: str = NO_CONNECTION
    trace_id: str = ""
    readback: bool = False


class ChatPublisher:
    """What one process knows of a chat's publishing: `mark` (all below is out) and the message before the next one."""

    def __init__(
        self,
        chat_id: str,
        *,
        log: MessageLog,
        prefix: PrefixReader,
        events: EventWriter,
        clock: Clock,
        observe: DurabilityObserver,
        producer_id: str,
    ) -> None:
        self.chat_id = chat_id
        self.mark = 0
        self.last_message: int | None = None  # the last message at or below the mark; 0: none, None: unknown
        self._own: dict[int, PublishItem] = {}  # filled by us, not out yet
        self._log = log
        self._prefix = prefix
        self._events = events
        self._clock = clock
        self._observe = observe
        self._producer_id = producer_id

    def adopt(self, mark: int, last_message: int | None) -> None:
        """Another owner has published up to `mark`; its word on the last message counts, not what we published last."""
        if mark > self.mark or (mark == self.mark and self.last_message is None):
            self.mark = mark
            self.last_message = last_message
            self._own = {sequence: out for sequence, out in self._own.items() if sequence > mark}

    def filled(self, item: PublishItem) -> None:
        """We filled this slot ourselves, so it need not be read back."""
        if item.slot.sequence > self.mark:
            self._own[item.slot.sequence] = item

    async def advance(self, target: int, *, deadline: Deadline) -> Mapping[int, int | None]:
        """Publishes until `mark` reaches `target`, an allocated slot. Returns each own message's predecessor.

        A hole below the target belongs to another writer. It is waited for, and closed once it was open for
        `SEAL_AFTER_S` by its neighbour's age or by our own watch, so that wrong wall clocks cost time, not progress.
        """
        began = self._clock.monotonic()
        pause = limits.HOLE_POLL_S
        predecessors: dict[int, int | None] = {}
        while self.mark < target:
            run = self._next_own() or await self._read_back(target, deadline)
            if not run and self._clock.monotonic() - began >= limits.SEAL_AFTER_S:
                run = await self._close_hole(deadline)
            if not run:
                await deadline.pause(pause)
                pause = min(pause * 2, limits.HOLE_POLL_MAX_S)
                continue
            predecessors.update(await self._append(run, deadline))
        return predecessors

    def _next_own(self) -> list[PublishItem]:
        run: list[PublishItem] = []
        while (out := self._own.get(self.mark + 1 + len(run))) is not None and len(run) < limits.PUBLISH_EVENTS_MAX:
            run.append(out)
        return run

    async def _read_back(self, target: int, deadline: Deadline) -> list[PublishItem]:
        limit = min(target - self.mark, limits.PUBLISH_EVENTS_MAX)
        prefix = await self._prefix.read(self.chat_id, after=self.mark, limit=limit, deadline=deadline)
        return await self._foreign(prefix.slots, deadline) if prefix.slots else []

    async def _close_hole(self, deadline: Deadline) -> list[PublishItem]:
        """A seal that was refused, or whose answer was lost, is followed by another read, as any other."""
        try:
            slot = await self._prefix.seal(self.chat_id, self.mark + 1, deadline=deadline)
        except (Conflict, Throttled, OutcomeUnknown):
            return []
        return await self._foreign([slot], deadline)

    async def _foreign(self, slots: Sequence[Slot], deadline: Deadline) -> list[PublishItem]:
        """Slots read back; our own among them go out as ours. The membership version is read after the slots, so it is
        not older than at their allocation.
        """
        version = 0
        if any(isinstance(slot, Message) for slot in slots):
            counters = await retry_refused(
                lambda room: self._log.counters([self.chat_id], timeout_s=room),
                deadline=deadline,
                clock=self._clock,
                observe=self._observe,
                reads=True,
            )
            if self.chat_id not in counters:
                raise ServiceUnavailable("this chat's counter is missing")
            version = counters[self.chat_id].members_version
        return [
            self._own.get(slot.sequence) or PublishItem(slot=slot, members_version=version, readback=True)
            for slot in slots
        ]

    async def _append(self, run: Sequence[PublishItem], deadline: Deadline) -> Mapping[int, int | None]:
        began = self._clock.monotonic()
        event_time = iso(self._clock.now_ms())
        predecessors: dict[int, int | None] = {}
        previous = self.last_message
        events: list[Event] = []
        for out in run:
            if isinstance(out.slot, Sealed):
                continue
            event = new_event(
                out.slot,
                previous,
                out.members_version,
                out.origin_connection_id,
                self._producer_id,
                out.trace_id,
                event_time,
            )
            events.append(republished(event, out.trace_id) if out.readback else event)
            predecessors[out.slot.sequence] = previous
            previous = out.slot.sequence
        if events:
            room = deadline.room(limits.PUBLISH_TIMEOUT_S)
            try:
                await self._events.append(MESSAGES, events, timeout_s=room)
            except SeriatimError as error:
                first = next(out.slot for out in run if isinstance(out.slot, Message))
                self._observe.publish_failed(self.chat_id, first.sequence, first.message_id, error)
                raise
            if self._observe.traces:
                for slot in [out.slot for out in run if isinstance(out.slot, Message)]:
                    self._observe.traced("published", self.chat_id, slot.sequence, slot.message_id)
            self._observe.published(len(events), self._clock.monotonic() - began)
            self._observe.republished(sum(out.readback and isinstance(out.slot, Message) for out in run))
        self.last_message = previous
        self.mark = run[-1].slot.sequence
        for out in run:
            self._own.pop(out.slot.sequence, None)
        return predecessors
