"""Which ingest process a chat's drafts go to: the owner of its bucket, or another one while the owner keeps failing.

Another one is safe and only slower (docs/spec/delivery.md#write-path). No sockets here: the simulator runs this router.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import BreakerState, CircuitBreaker
from seriatim.domain.errors import BreakerOpen, ServerBusy
from seriatim.domain.message import Draft
from seriatim.engines.grpc.pending_send import DraftSink, PendingSend
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Answer

ChooseAddress = Callable[[str, Sequence[str]], str]


class ChatRouter:
    """All sends of a chat go to one process while any of them is in flight, so that they keep their order.

    Each address has a circuit breaker, which outlives its streams. `failed` and `answered` report to it. A failure is
    a lost stream with unanswered drafts, or a second in which drafts missed their deadline and none was answered. Any
    answer counts as a success, also an error.
    """

    def __init__(self, clock: Clock, choose: ChooseAddress) -> None:
        self._clock = clock
        self._choose = choose
        self._streams: Mapping[str, DraftSink] = {}
        self._breakers: dict[str, CircuitBreaker] = {}
        self._some_failing = False  # the breaker of some stream is not closed
        self._routes: dict[str, _Route] = {}  # of chats with sends in flight
        self._sends = 0
        self.ready: tuple[str, ...] = ()

    @property
    def breaker_open(self) -> bool:
        """Half open counts as open: it is not known yet whether that process works."""
        return any(not breaker.closed for breaker in self._breakers.values())

    @property
    def preferred(self) -> Sequence[str]:
        """The addresses to call: those whose breaker is closed, or all if there is none."""
        if not self._some_failing:
            return self.ready
        return [address for address in self.ready if self._breakers[address].closed] or self.ready

    # --- sends --------------------------------------------------------------------------------------------------------

    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        if self._sends >= limits.GRPC_SENDS_MAX:
            busy = ServerBusy("too many messages wait for the durability plane; retry", retry_after_seconds=1)
            asyncio.get_running_loop().call_soon(answer, busy)
            return
        route = self._routes.get(draft.chat_id)
        if route is None:
            stream = self._stream_for(draft.chat_id)
            if isinstance(stream, BreakerOpen):
                asyncio.get_running_loop().call_soon(answer, stream)
                return
            route = self._routes[draft.chat_id] = _Route(stream)
        self._sends += 1
        send = PendingSend(draft, deadline, answer, self._settled)
        if route.usable and not route.held and route.stream is not None:
            route.in_flight += 1
            route.stream.put(send)
        else:
            route.held.append(send)

    def _settled(self, send: PendingSend) -> None:
        self._sends -= 1
        chat_id = send.draft.chat_id
        route = self._routes.get(chat_id)
        if route is not None:
            if send.stream is not None:
                route.in_flight -= 1
            self._advance(chat_id, route)

    def _advance(self, chat_id: str, route: "_Route") -> None:
        """Held sends go to another process only when none of the chat is in flight any more."""
        while route.held and route.held[0].answered:
            route.held.popleft()
        if route.in_flight:
            return
        if not route.held:
            del self._routes[chat_id]
            return
        stream = self._stream_for(chat_id)
        if isinstance(stream, BreakerOpen):
            del self._routes[chat_id]
            for send in route.held:
                send.finish(stream)
            return
        route.stream = stream
        route.usable = stream is not None
        if stream is not None:
            for send in route.held:
                if not send.answered:
                    route.in_flight += 1
                    stream.put(send)
            route.held.clear()

    def _stream_for(self, chat_id: str) -> DraftSink | BreakerOpen | None:
        """None while no process is ready. An open breaker lets one send through now and then, as its probe."""
        if not self.ready:
            return None
        if not self._some_failing:
            return self._streams[self._choose(chat_id, self.ready)]
        now = self._clock.monotonic()
        left, waits = list(self.ready), []
        while left:
            address = self._choose(chat_id, left)
            wait = self._breakers[address].admit(now)
            if wait is None:
                return self._streams[address]
            waits.append(wait)
            left.remove(address)
        return BreakerOpen(
            "the durability plane keeps failing; retry later with the same id", retry_after_seconds=min(waits)
        )

    # --- streams ------------------------------------------------------------------------------------------------------

    def set_streams(self, streams: Mapping[str, DraftSink]) -> None:
        """From now on these streams take drafts, by address."""
        self._streams = streams
        self.ready = tuple(sorted(streams))
        for address in self.ready:
            self._breakers.setdefault(address, CircuitBreaker())
        self._update_routes()

    def forget(self, address: str) -> None:
        """The address is no longer listed: its breaker goes."""
        self._breakers.pop(address, None)

    def failed(self, address: str) -> None:
        breaker = self._breakers.get(address)
        if breaker is not None:
            before = breaker.closed
            breaker.failed(self._clock.monotonic())
            if breaker.closed is not before:
                self._update_routes()

    def answered(self, address: str) -> None:
        breaker = self._breakers.get(address)
        if breaker is not None:
            before = breaker.closed
            breaker.succeeded(self._clock.monotonic())
            if breaker.closed is not before:
                self._update_routes()

    def breakers(self) -> Mapping[str, BreakerState]:
        now = self._clock.monotonic()
        return {address: breaker.state(now) for address, breaker in self._breakers.items()}

    def _update_routes(self) -> None:
        usable = [stream for address, stream in self._streams.items() if self._breakers[address].closed]
        self._some_failing = len(usable) < len(self._streams)
        for chat_id, route in list(self._routes.items()):
            route.usable = route.stream in usable
            if route.held:
                self._advance(chat_id, route)


class _Route:
    """Where a chat's sends go. `held` wait for a stream, or for those in flight on a stream that is not usable."""

    __slots__ = ("held", "in_flight", "stream", "usable")

    def __init__(self, stream: DraftSink | None) -> None:
        self.stream = stream
        self.usable = stream is not None
        self.in_flight = 0
        self.held: deque[PendingSend] = deque()
