"""In place of the gRPC streams between gateways and ingest processes: one ordered stream per pair.

Implements `Durability`. The real `engines/grpc/chat_router` decides which stream a draft takes, holds it
back where order needs it, and keeps the breakers. The streams here are simulated: requests and answers may be late or
lost, a dead process answers nothing, and one that is silent for some seconds loses its stream.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, RowUnreadable, SeriatimError
from seriatim.domain.message import Draft, Receipt
from seriatim.domain.sharding import bucket, owner
from seriatim.durability.ingest import Ingest
from seriatim.engines.grpc.chat_router import ChatRouter
from seriatim.engines.grpc.pending_send import PendingSend
from seriatim.ports.durability import Answer, PrefixPage
from seriatim.simulation.checks.history import DEADLINE_SLACK_S, WorldHistory
from seriatim.simulation.faults.plan import Fault, Faults
from seriatim.simulation.faults.profiles import WireKind
from seriatim.simulation.process import Process

T = TypeVar("T")


class IngestNode:
    """An ingest process under its name; the process behind it changes with every restart."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: Process | None = None
        self.ingest: Ingest | None = None
        self.inbox: deque[Callable[[], None]] = deque()
        self.answers_nothing = False  # drafts reach it, and it answers none

    def begin(self, process: Process, ingest: Ingest) -> None:
        """A new process under this name. Drafts that the last one had not taken up are lost."""
        self.process = process
        self.ingest = ingest
        self.inbox = deque()

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def responsive(self) -> bool:
        """It would answer a ping."""
        return self.process is not None and self.process.alive and not self.process.paused


class SimulatedDurability:
    """One gateway life's client of the durability plane."""

    def __init__(self, process: Process, nodes: Sequence[IngestNode], faults: Faults, history: WorldHistory) -> None:
        self._process = process
        self._loop = process.loop
        self._nodes = nodes
        self._by_name = {node.name: node for node in nodes}
        self._faults = faults
        self._history = history
        self.router = ChatRouter(process.clock, self._choose)
        self._streams: dict[str, _IngestStream] = {}
        self._dialling = False

    # --- sends: a callback each, in order ---------------------------------------------------------------------------

    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        self._history.send_submitted(draft)
        self.dial()
        self.router.submit(draft, deadline=deadline, answer=answer)

    def dial(self) -> None:
        """A stream to each process that answers: a new one for a new life, and for one that was silent and is back."""
        changed = False
        for node in self._nodes:
            stream = self._streams.get(node.name)
            if node.responsive and (stream is None or stream.life is not node.process):
                if stream is not None:
                    self.stream_lost(stream)
                self._streams[node.name] = _IngestStream(self, node)
                changed = True
        if changed:
            self.router.set_streams(self._streams)
        if not self._streams and not self._dialling:
            self._dialling = True
            self._loop.call_later(limits.GRPC_REDIAL_S, self._redial, context=self._process.context)

    def _redial(self) -> None:
        self._dialling = False
        self.dial()

    def stream_lost(self, stream: "_IngestStream") -> None:
        """What was under way on it stays without an answer: one failure of that process, however much it was."""
        if self._streams.get(stream.node.name) is stream:
            del self._streams[stream.node.name]
            self.router.set_streams(self._streams)
        if stream.unanswered:
            self.router.failed(stream.node.name)
        stream.end()

    def _choose(self, chat_id: str, names: Sequence[str]) -> str:
        if self._faults.misroutes():
            return names[int(self._process.clock.random() * len(names))]
        return owner(bucket(chat_id), names)

    # --- reads and receipts: a coroutine at the ingest process ------------------------------------------------------

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        async def at_ingest(ingest: Ingest) -> PrefixPage:
            try:
                return await ingest.read(user_id, chat_id, after=after, limit=limit, timeout_s=timeout_s)
            except SeriatimError as error:
                self._history.refused(f"a read of {chat_id}", error)
                raise

        page = await self._call(chat_id, at_ingest, timeout_s)
        self._history.page_read(user_id, chat_id, after, page)
        return page

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        await self._call(
            chat_id,
            lambda ingest: ingest.acknowledge(user_id, chat_id, sequence=sequence, timeout_s=timeout_s),
            timeout_s,
        )

    async def heads(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, int]:
        """The first chat's process answers for all: marks are in the store, a pipeline only knows better."""
        try:
            return await self._call(chat_ids[0], lambda ingest: ingest.heads(chat_ids, timeout_s=timeout_s), timeout_s)
        except RowUnreadable:
            self._history.refused_for_damage(chat_ids)
            raise

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        first = next(iter(since))
        return await self._call(first, lambda ingest: ingest.joined(since, timeout_s=timeout_s), timeout_s)

    async def _call(self, chat_id: str, method: Callable[[Ingest], Coroutine[Any, Any, T]], timeout_s: float) -> T:
        loop, faults = self._loop, self._faults
        up = [node.name for node in self._nodes if node.up]
        node = self._by_name[self._choose(chat_id, up or list(self._by_name))]
        future: asyncio.Future[T] = loop.create_future()
        fault = faults.draw_fault(WireKind.RPC, "call", loop.time())

        def give_up() -> None:
            if not future.done():
                future.set_exception(OutcomeUnknown("no answer from the durability plane"))

        def answer(task: asyncio.Task[T]) -> None:
            if fault is None and not task.cancelled():
                loop.call_later(faults.delay(WireKind.RPC), lambda: _copy(task, future), context=self._process.context)

        def arrive() -> None:
            if node.up and node.process is not None and node.ingest is not None:
                task = node.process.spawn(method(node.ingest))
                task.add_done_callback(answer)

        timer = loop.call_later(timeout_s, give_up)
        if fault in (None, Fault.RESPONSE_LOST, Fault.LATE):
            loop.call_later(faults.delay(WireKind.RPC), arrive, context=loop.world.context)
        try:
            return await future
        finally:
            timer.cancel()


def _copy(task: asyncio.Task[T], future: asyncio.Future[T]) -> None:
    error = task.exception()
    if future.done():
        return
    if error is None:
        future.set_result(task.result())
    else:
        future.set_exception(error)


class _IngestStream:
    """To one life of an ingest process: carries drafts in order, each after a delay, and notices silence.

    It checks once a second, while drafts are in flight.
    """

    def __init__(self, remote: SimulatedDurability, node: IngestNode) -> None:
        self.node = node
        self.life = node.process
        self.unanswered: dict[_StreamSend, None] = {}
        self._remote = remote
        self._loop = remote._loop
        self._faults = remote._faults
        self._waiting: list[Callable[[], None]] = []
        self._last = 0.0
        self._checking = False
        self._missed_pings = 0
        self._deadline_missed = False

    def put(self, pending: PendingSend) -> None:
        pending.stream = self
        send = _StreamSend(self._remote, self, pending)
        self.unanswered[send] = None
        self._schedule_liveness_check()
        fault = self._faults.draw_fault(WireKind.RPC, "submit", self._loop.time())
        if fault in (None, Fault.RESPONSE_LOST, Fault.LATE):
            send.silent = fault is not None
            self._last = max(self._last, self._loop.time() + self._faults.delay(WireKind.RPC))
            self._waiting.append(lambda: self._deliver(send))
            self._loop.call_at(self._last, self._next, context=self._loop.world.context)

    def answered(self, send: "_StreamSend", outcome: Receipt | SeriatimError) -> None:
        self._deadline_missed = False
        self._remote.router.answered(self.node.name)
        self.settled(send)
        send.pending.finish(outcome)

    def settled(self, send: "_StreamSend") -> None:
        self.unanswered.pop(send, None)

    def deadline_missed(self) -> None:
        self._deadline_missed = True

    def end(self) -> None:
        left, self.unanswered = self.unanswered, {}
        for send in left:
            send.pending.finish(OutcomeUnknown("the durability plane was lost on the way; retry with the same id"))

    def _next(self) -> None:
        self._waiting.pop(0)()

    def _deliver(self, send: "_StreamSend") -> None:
        node = self.node
        if node.process is self.life and node.up and node.process is not None and node.ingest is not None:
            ingest, inbox, pending = node.ingest, node.inbox, send.pending
            if node.answers_nothing:
                return
            send.taken_by(node.process)
            inbox.append(lambda: ingest.submit(pending.draft, deadline=pending.deadline, answer=send.respond))
            node.process.call_soon(lambda: inbox.popleft()())  # first in, first out, also when callbacks are shuffled

    def _schedule_liveness_check(self) -> None:
        if not self._checking:
            self._checking = True
            self._loop.call_later(limits.GRPC_PING_S, self._check_liveness, context=self._remote._process.context)

    def _check_liveness(self) -> None:
        self._checking = False
        dead = self.life is None or not self.life.alive
        if dead or self.life is None or self.life.paused:
            self._missed_pings += 1
        else:
            self._missed_pings = 0
        if self._deadline_missed:
            self._deadline_missed = False
            self._remote.router.failed(self.node.name)
        # The kernel of a process that dies hangs up for it; the one of a machine that dies does not.
        if self._missed_pings > limits.GRPC_PINGS_UNANSWERED_MAX or (dead and self._faults.even_chance()):
            self._remote.stream_lost(self)
            self._remote.dial()
            return
        self.unanswered = {send: None for send in self.unanswered if not send.pending.answered}
        if self.unanswered:
            self._schedule_liveness_check()


class _StreamSend:
    """A draft on a stream."""

    __slots__ = ("_remote", "_stream", "decided", "pending", "silent")

    def __init__(self, remote: SimulatedDurability, stream: _IngestStream, pending: PendingSend) -> None:
        self._remote = remote
        self._stream = stream
        self.pending = pending
        self.silent = False
        self.decided = False

    def taken_by(self, ingest: Process) -> None:
        """The plane has it now, and owes an answer by the deadline."""
        loop = self._remote._loop
        at = max(self.pending.deadline, loop.time()) + DEADLINE_SLACK_S
        loop.call_at(at, self._overdue, ingest, loop.time(), context=loop.world.context)

    def _overdue(self, ingest: Process, since: float) -> None:
        """A process that stood still meanwhile may be late."""
        if not self.decided and ingest.alive and not ingest.paused and ingest.resumed_at < since:
            self._remote._history.send_overdue(self.pending.draft)

    def respond(self, outcome: Receipt | SeriatimError) -> None:
        """In the ingest process: the answer begins its way back."""
        self.decided = True
        self._remote._history.send_answered(self.pending.draft, outcome)
        if not self.silent:
            loop, process = self._remote._loop, self._remote._process
            delay = self._remote._faults.delay(WireKind.RPC)
            loop.call_later(delay, self._stream.answered, self, outcome, context=process.context)
