"""A gateway's way to the ingest processes, as gRPC will be: one ordered stream per pair, a chat to one process.

Implements `ports.durability.Durability`. Requests and answers may be late or lost; a dead process answers nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from seriatim.domain.errors import OutcomeUnknown, RowUnreadable, SeriatimError
from seriatim.domain.message import Draft, Receipt
from seriatim.domain.partition import bucket, owner
from seriatim.durability.ingest import Ingest
from seriatim.ports.durability import Answer, PrefixPage
from seriatim.simulation.faults import Fault, Faults
from seriatim.simulation.history import PUNCTUAL_S, History
from seriatim.simulation.process import Process
from seriatim.simulation.profiles import WireKind

T = TypeVar("T")


class IngestNode:
    """An ingest process under its name; the process behind it changes with every restart."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: Process | None = None
        self.ingest: Ingest | None = None
        self.inbox: deque[Callable[[], None]] = deque()

    def begin(self, process: Process, ingest: Ingest) -> None:
        """A new life: whatever the last one had not taken up is gone with it."""
        self.process = process
        self.ingest = ingest
        self.inbox = deque()

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.alive


class RemoteDurability:
    """One gateway life's client of the durability plane."""

    def __init__(self, process: Process, nodes: Sequence[IngestNode], faults: Faults, history: History) -> None:
        self._process = process
        self._loop = process.loop
        self._nodes = nodes
        self._by_name = {node.name: node for node in nodes}
        self._faults = faults
        self._history = history
        self._streams: dict[str, _Stream] = {}
        self._routes: dict[str, tuple[IngestNode, int]] = {}  # of chats with sends in flight, and how many

    # --- sends: a callback each, in order ---------------------------------------------------------------------------

    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        node = self._route_in_order(draft.chat_id)
        call = _Send(self, draft, answer, deadline)
        self._history.submitted(draft)
        call.timer = self._loop.call_at(deadline, call.expire, context=self._process.context)
        fault = self._faults.fate(WireKind.RPC, "submit", self._loop.time())
        if fault in (None, Fault.RESPONSE_LOST, Fault.LATE):
            call.silent = fault is not None
            stream = self._stream(node)
            stream.carry(lambda: self._deliver(node, draft, deadline, call))

    def _deliver(self, node: IngestNode, draft: Draft, deadline: float, call: "_Send") -> None:
        if node.up and node.process is not None and node.ingest is not None:
            ingest, inbox = node.ingest, node.inbox
            call.taken_by(node.process)
            inbox.append(lambda: ingest.submit(draft, deadline=deadline, answer=call.respond))
            node.process.call_soon(lambda: inbox.popleft()())  # first in, first out, also when callbacks are shuffled

    def settled(self, chat_id: str) -> None:
        node, count = self._routes[chat_id]
        if count == 1:
            del self._routes[chat_id]
        else:
            self._routes[chat_id] = (node, count - 1)

    def _route_in_order(self, chat_id: str) -> IngestNode:
        """Sends of one chat stay together while any is in flight: two processes would not keep their order."""
        node, count = self._routes.get(chat_id, (None, 0))
        if node is None or not node.up:
            node = self._route(chat_id)
        self._routes[chat_id] = (node, count + 1)
        return node

    def _route(self, chat_id: str) -> IngestNode:
        names = [node.name for node in self._nodes]
        if self._faults.misroutes():
            return self._by_name[names[int(self._process.clock.random() * len(names))]]
        up = [node.name for node in self._nodes if node.up]
        return self._by_name[owner(bucket(chat_id), up or names)]

    def _stream(self, node: IngestNode) -> "_Stream":
        stream = self._streams.get(node.name)
        if stream is None:
            stream = self._streams[node.name] = _Stream(self._process, self._faults)
        return stream

    # --- reads and receipts: a coroutine at the ingest process ------------------------------------------------------

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        async def at_ingest(ingest: Ingest) -> PrefixPage:
            try:
                return await ingest.read(user_id, chat_id, after=after, limit=limit, timeout_s=timeout_s)
            except SeriatimError as error:
                self._history.refused(f"a read of {chat_id}", error)
                raise

        page = await self._call(chat_id, at_ingest, timeout_s)
        self._history.exposed(user_id, chat_id, after, page)
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
        node = self._route(chat_id)
        future: asyncio.Future[T] = loop.create_future()
        fault = faults.fate(WireKind.RPC, "call", loop.time())

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


class _Stream:
    """Carries things in order, each after a delay."""

    def __init__(self, process: Process, faults: Faults) -> None:
        self._loop = process.loop
        self._faults = faults
        self._waiting: list[Callable[[], None]] = []
        self._last = 0.0

    def carry(self, arrive: Callable[[], None]) -> None:
        self._last = max(self._last, self._loop.time() + self._faults.delay(WireKind.RPC))
        self._waiting.append(arrive)
        self._loop.call_at(self._last, self._next, context=self._loop.world.context)

    def _next(self) -> None:
        self._waiting.pop(0)()


class _Send:
    """A send on its way: answered once, at the latest at its deadline."""

    __slots__ = ("_answer", "_deadline", "_draft", "_remote", "decided", "silent", "timer")

    def __init__(self, remote: RemoteDurability, draft: Draft, answer: Answer, deadline: float) -> None:
        self._remote = remote
        self._draft = draft
        self._deadline = deadline
        self._answer: Answer | None = answer
        self.silent = False
        self.decided = False
        self.timer: asyncio.TimerHandle | None = None

    def taken_by(self, ingest: Process) -> None:
        """The plane has it now, and owes an answer by the deadline."""
        loop = self._remote._loop
        at = max(self._deadline, loop.time()) + PUNCTUAL_S
        loop.call_at(at, self._overdue, ingest, loop.time(), context=loop.world.context)

    def _overdue(self, ingest: Process, since: float) -> None:
        """A process that stood still meanwhile may be late."""
        if not self.decided and ingest.alive and not ingest.paused and ingest.resumed_at < since:
            self._remote._history.unanswered(self._draft)

    def respond(self, outcome: Receipt | SeriatimError) -> None:
        """In the ingest process: the answer begins its way back."""
        self.decided = True
        self._remote._history.decided(self._draft, outcome)
        if not self.silent:
            loop, process = self._remote._loop, self._remote._process
            delay = self._remote._faults.delay(WireKind.RPC)
            loop.call_later(delay, self.finish, outcome, context=process.context)

    def expire(self) -> None:
        self.finish(OutcomeUnknown("the durability plane did not answer in time; retry with the same id"))

    def finish(self, outcome: Receipt | SeriatimError) -> None:
        if self._answer is None:
            return
        answer, self._answer = self._answer, None
        if self.timer is not None:
            self.timer.cancel()
        self._remote.settled(self._draft.chat_id)
        answer(outcome)
