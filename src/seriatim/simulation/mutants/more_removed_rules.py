"""More rules taken out, as in `removed_rules`: those about the time things take, and about what is left behind."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

from seriatim.client.actions import Action
from seriatim.client.session import ClientSession, SessionTimer
from seriatim.client.timeline import Timeline
from seriatim.connection.gateway import Gateway
from seriatim.connection.new_chats import NewChatProbe
from seriatim.connection.registrations import Registrations
from seriatim.connection.session.acks import Acks
from seriatim.connection.session.chat_cursor import ChatCursor
from seriatim.connection.session.chat_delivery import ChatDelivery
from seriatim.connection.session.outbound import OutboundBuffer, Pressure
from seriatim.domain import limits
from seriatim.domain.circuit_breaker import Breaker
from seriatim.domain.errors import RowUnreadable, SeriatimError
from seriatim.domain.message import Message
from seriatim.durability import atomic_commit, slots
from seriatim.durability.atomic_commit import Express
from seriatim.durability.deadline import Deadline
from seriatim.durability.ingest import Ingest
from seriatim.durability.pipeline import ChatPipeline, Pending
from seriatim.durability.reads import MemberReads
from seriatim.durability.reconcile import Reconciler
from seriatim.durability.slots import Lease, SlotWriter
from seriatim.engines.inprocess.directory import MemoryRegistry
from seriatim.fanout import recipients
from seriatim.operations.counter_repair import CounterRepairer
from seriatim.ports.atomic_store import Step
from seriatim.ports.directory import Registration
from seriatim.ports.durability import PrefixPage
from seriatim.ports.message_log import ChatCounter, Entry
from seriatim.protocol.frames import Ack, MessageAck
from seriatim.simulation.mutants.removed_rules import Patch
from seriatim.simulation.stores.atomic_store import MemoryStep

# --- storing and publishing -----------------------------------------------------------------------------------------


def batch_reversed() -> Sequence[Patch]:
    original = ChatPipeline._take

    def take(self: ChatPipeline) -> list[Pending]:
        return original(self)[::-1]

    return [(ChatPipeline, "_take", take)]


def resolve_assumes_committed() -> Sequence[Patch]:
    async def resolve(self: SlotWriter, first: Entry, lease: Lease, deadline: Deadline) -> bool:
        return True

    return [(SlotWriter, "_resolve", resolve)]


def reconciler_flushes_unpublished() -> Sequence[Patch]:
    async def settle(self: Reconciler, chat_id: str, deadline: Deadline) -> bool:
        counter = (await self._log.counters([chat_id], timeout_s=deadline.room())).get(chat_id)
        return counter is not None and await self._log.flush(
            chat_id, published_through=counter.allocated, published_message=None, timeout_s=deadline.room()
        )

    return [(Reconciler, "settle", settle)]


def deadline_ignored() -> Sequence[Patch]:
    def room(self: Deadline, most_s: float = limits.STORE_TIMEOUT_S) -> float:
        return most_s

    return [(Deadline, "room", room)]


def breaker_never_closes() -> Sequence[Patch]:
    return [(Breaker, "succeeded", lambda self, now: None)]


def repair_from_slots_alone() -> Sequence[Patch]:
    """A counter rebuilt below what members have seen: the messages that come then are invisible to them."""
    original = CounterRepairer.__init__

    def begin(self: CounterRepairer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **{**kwargs, "highest_published": lambda chat_id: 0})

    async def highest_watermark(self: CounterRepairer, chat_id: str) -> int:
        return 0

    return [(CounterRepairer, "__init__", begin), (CounterRepairer, "_highest_watermark", highest_watermark)]


def key_ends_early() -> Sequence[Patch]:
    def floored(created_ms: int) -> int:
        return created_ms // 1000 + limits.KEY_LIFETIME_S

    return [(atomic_commit, "expires_at_s", floored), (slots, "expires_at_s", floored)]


# --- whole sends in one step ------------------------------------------------------------------------------------------


def step_answered_early() -> Sequence[Patch]:
    original = Express._decide

    def decide(self: Express, company: atomic_commit._Company, step: Step) -> None:
        original(self, company, step)
        for pending, outcome in zip(company.drafts, company.outcomes, strict=True):
            asyncio.get_running_loop().call_soon(pending.answer, outcome)

    return [(Express, "_decide", decide)]


def step_ignores_keys() -> Sequence[Patch]:
    return [(atomic_commit, "expired", lambda key, now_s: True)]


def step_takes_outsiders() -> Sequence[Patch]:
    return [(MemoryStep, "is_member", lambda self, chat_id, user_id: True)]


def step_takes_the_unpublished_along() -> Sequence[Patch]:
    return [(atomic_commit, "_chat", lambda counter: None if counter is None else atomic_commit._Chat(counter))]


def step_without_counter() -> Sequence[Patch]:
    return [(atomic_commit._Batch, "finish", lambda self: None)]


def step_reversed() -> Sequence[Patch]:
    original = Express._decide

    def decide(self: Express, company: atomic_commit._Company, step: Step) -> None:
        company.drafts.reverse()
        original(self, company, step)

    return [(Express, "_decide", decide)]


def step_shares_damage() -> Sequence[Patch]:
    def leave(self: atomic_commit._Batch, chat_id: str, error: RowUnreadable) -> None:
        raise error

    return [(atomic_commit._Batch, "_leave", leave)]


def heads_share_damage() -> Sequence[Patch]:
    async def counters(self: Ingest, chat_ids: Sequence[str], deadline: Deadline) -> Mapping[str, ChatCounter]:
        return await self._log.counters(chat_ids, timeout_s=deadline.room())

    return [(Ingest, "_counters", counters)]


# --- reading and acknowledging --------------------------------------------------------------------------------------


def reads_unauthorised() -> Sequence[Patch]:
    async def check(self: MemberReads, user_id: str, chat_id: str, deadline: Deadline) -> None:
        return

    return [(MemberReads, "_check_member", check)]


def reads_checked_before() -> Sequence[Patch]:
    async def read(
        self: MemberReads, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float
    ) -> PrefixPage:
        deadline = Deadline(self._clock, self._clock.monotonic() + timeout_s)
        await self._check_member(user_id, chat_id, deadline)
        page, _ = await self._page(chat_id, after, limit, deadline, sealing=True)
        return page

    return [(MemberReads, "read", read)]


def acks_dropped() -> Sequence[Patch]:
    """An ack that comes while another of its chat is on its way, or that fails, is gone."""

    async def pass_on(self: Acks, ack: Ack) -> None:
        sequence = self._wanted[ack.chat_id]
        try:
            await self._services.durability.acknowledge(
                self._user_id, ack.chat_id, sequence=sequence, timeout_s=limits.PERSIST_DEADLINE_S
            )
        except SeriatimError:
            pass
        finally:
            if (cursor := self._chats.cursor(ack.chat_id)) is not None:
                cursor.acked = max(cursor.acked, self._wanted[ack.chat_id])
            del self._wanted[ack.chat_id]
            self._done()

    return [(Acks, "_pass_on", pass_on)]


# --- connections ----------------------------------------------------------------------------------------------------


def no_look_for_new_chats() -> Sequence[Patch]:
    async def look(self: NewChatProbe) -> None:
        return

    return [(NewChatProbe, "look", look)]


def cursor_forgotten_on_removal() -> Sequence[Patch]:
    def removed(self: ChatDelivery, cursor: ChatCursor) -> None:
        self.forget(cursor)

    return [(ChatDelivery, "_removed", removed)]


def cursor_goes_back() -> Sequence[Patch]:
    original = ChatCursor.sync_started

    def sync_started(self: ChatCursor, after: int) -> int:
        epoch = original(self, after)
        self._sent = 0
        return epoch

    return [(ChatCursor, "sync_started", sync_started)]


def slow_never_closed() -> Sequence[Patch]:
    original = OutboundBuffer.assess

    def assess(self: OutboundBuffer, now: float) -> Pressure | None:
        pressure = original(self, now)
        self.close_at = None if self.close_at is None else math.inf
        return pressure

    return [(OutboundBuffer, "assess", assess)]


def slow_closed_at_once() -> Sequence[Patch]:
    original = OutboundBuffer.assess

    def assess(self: OutboundBuffer, now: float) -> Pressure | None:
        pressure = original(self, now)
        if self.close_at is not None:
            self.close_at = now
        return pressure

    return [(OutboundBuffer, "assess", assess)]


def never_evicts() -> Sequence[Patch]:
    async def evict(self: Gateway, registration: Registration) -> None:
        return

    return [(Gateway, "_evict", evict)]


def never_unregisters() -> Sequence[Patch]:
    async def remove(self: Registrations, registration: Registration) -> None:
        self._ours.pop(registration.connection_id, None)

    return [(Registrations, "remove", remove)]


def renewal_revives() -> Sequence[Patch]:
    original = MemoryRegistry.unregister

    def unregister(self: MemoryRegistry, registration: Registration, now_ms: int) -> None:
        original(self, registration, now_ms)
        self._ended.clear()

    return [(MemoryRegistry, "unregister", unregister)]


def echo_to_origin() -> Sequence[Patch]:
    return [(recipients, "reached", lambda event, online, everyone: everyone)]


# --- the client -----------------------------------------------------------------------------------------------------


def no_list_on_resync() -> Sequence[Patch]:
    original = ClientSession._ring

    def ring(self: ClientSession, alarm: SessionTimer, now: float) -> list[Action]:
        if alarm is not SessionTimer.RESYNC:
            return original(self, alarm, now)
        self._alarms.set(SessionTimer.RESYNC, self._resync_at(now))
        self._catchup.want_all()
        return []

    return [(ClientSession, "_ring", ring)]


def ack_without_entry_ignored() -> Sequence[Patch]:
    original = ClientSession._acknowledged

    def acknowledged(self: ClientSession, frame: MessageAck, now: float) -> list[Action]:
        known = self._outbox.find(frame.chat_id, frame.client_message_id.lower()) is not None
        return original(self, frame, now) if known else []

    return [(ClientSession, "_acknowledged", acknowledged)]


def cursor_before_messages() -> Sequence[Patch]:
    original = Timeline._extend

    def extend(self: Timeline, fresh: list[Message], end: int) -> list[Message]:
        self._store.advance_cursor(self.chat_id, end)
        return original(self, fresh, end)

    return [(Timeline, "_extend", extend)]
