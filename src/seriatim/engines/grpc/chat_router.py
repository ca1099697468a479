"""Which ingest process a chat's drafts go to: the owner of its bucket, or another one while that one keeps failing.

Another one is harmless and only slower (docs/spec/delivery.md#write-path). No sockets here: the simulator runs this
as it is.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import Breaker, BreakerState
from seriatim.domain.errors import BreakerOpen, ServerBusy
from seriatim.domain.message import Draft
from seriatim.engines.grpc.pending_send import Sending
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Answer

Choice = Callable[[str, Sequence[str]], str]


class Taker(Protocol):
    """A line that takes drafts, and sets `sending.line`."""

    def put(self, sending: Sending) -> None:
        """Goes out after all that was put before it."""
        ...


class Router:
    """Sends of one chat go one way while any is under way, so that they keep their order.

    Each address has a breaker of its own, which outlives its lines. `failed` and `answered` report to it: a lost line
    that left drafts unanswered, a second in which drafts ran out of time and none was answered; and any answer,
    whatever it says.
    """

    def __init__(self, clock: Clock, choose: Choice) -> None:
        self._clock = clock
        self._choose = choose
        self._lines: Mapping[str, Taker] = {}
        self._breakers: dict[str, Breaker] = {}
        self._doubtful = False  # some line that takes drafts has a breaker that is not closed
        self._routes: dict[str, _Route] = {}  # of chats with sends under way
        self._sends = 0
        self.ready: tuple[str, ...] = ()

    @property
    def breaker_open(self) -> bool:
        """Half open counts as open: it is not known yet whether that one works."""
        return any(not breaker.closed for breaker in self._breakers.values())

    @property
    def trusted(self) -> Sequence[str]:
        """Those to ask, best first: the ones that fail only when there is no other."""
        if not self._doubtful:
            return self.ready
        return [address for address in self.ready if self._breakers[address].closed] or self.ready

    # --- sends --------------------------------------------------------------------------------------------------------

    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        if self._sends >= limits.RPC_SENDS_MAX:
            busy = ServerBusy("too many messages wait for the durability plane; retry", retry_after_seconds=1)
            asyncio.get_running_loop().call_soon(answer, busy)
            return
        route = self._routes.get(draft.chat_id)
        if route is None:
            line = self._line(draft.chat_id)
            if isinstance(line, BreakerOpen):
                asyncio.get_running_loop().call_soon(answer, line)
                return
            route = self._routes[draft.chat_id] = _Route(line)
        self._sends += 1
        sending = Sending(draft, deadline, answer, self._settled)
        if route.open and not route.held and route.line is not None:
            route.placed += 1
            route.line.put(sending)
        else:
            route.held.append(sending)

    def _settled(self, sending: Sending) -> None:
        self._sends -= 1
        chat_id = sending.draft.chat_id
        route = self._routes.get(chat_id)
        if route is not None:
            if sending.line is not None:
                route.placed -= 1
            self._go_on(chat_id, route)

    def _go_on(self, chat_id: str, route: "_Route") -> None:
        """Sends of one chat stay together: those that wait for another process wait for the ones under way."""
        while route.held and route.held[0].answered:
            route.held.popleft()
        if route.placed:
            return
        if not route.held:
            del self._routes[chat_id]
            return
        line = self._line(chat_id)
        if isinstance(line, BreakerOpen):
            del self._routes[chat_id]
            for sending in route.held:
                sending.finish(line)
            return
        route.line = line
        route.open = line is not None
        if line is not None:
            for sending in route.held:
                if not sending.answered:
                    route.placed += 1
                    line.put(sending)
            route.held.clear()

    def _line(self, chat_id: str) -> Taker | BreakerOpen | None:
        """None: there is none yet. Of those that keep failing one send is let through now and then, to try them."""
        if not self.ready:
            return None
        if not self._doubtful:
            return self._lines[self._choose(chat_id, self.ready)]
        now = self._clock.monotonic()
        left, waits = list(self.ready), []
        while left:
            address = self._choose(chat_id, left)
            wait = self._breakers[address].admit(now)
            if wait is None:
                return self._lines[address]
            waits.append(wait)
            left.remove(address)
        return BreakerOpen(
            "the durability plane keeps failing; retry later with the same id", retry_after_seconds=min(waits)
        )

    # --- lines --------------------------------------------------------------------------------------------------------

    def changed(self, lines: Mapping[str, Taker]) -> None:
        """These take drafts from now on, by their addresses."""
        self._lines = lines
        self.ready = tuple(sorted(lines))
        for address in self.ready:
            self._breakers.setdefault(address, Breaker())
        self._look_again()

    def forget(self, address: str) -> None:
        """It is listed no more."""
        self._breakers.pop(address, None)

    def failed(self, address: str) -> None:
        breaker = self._breakers.get(address)
        if breaker is not None:
            before = breaker.closed
            breaker.failed(self._clock.monotonic())
            if breaker.closed is not before:
                self._look_again()

    def answered(self, address: str) -> None:
        breaker = self._breakers.get(address)
        if breaker is not None:
            before = breaker.closed
            breaker.succeeded(self._clock.monotonic())
            if breaker.closed is not before:
                self._look_again()

    def breakers(self) -> Mapping[str, BreakerState]:
        now = self._clock.monotonic()
        return {address: breaker.state(now) for address, breaker in self._breakers.items()}

    def _look_again(self) -> None:
        good = [line for address, line in self._lines.items() if self._breakers[address].closed]
        self._doubtful = len(good) < len(self._lines)
        for chat_id, route in list(self._routes.items()):
            route.open = route.line in good
            if route.held:
                self._go_on(chat_id, route)


class _Route:
    """Where a chat's sends go. `held` wait: for a line to be there, or for those under way on one that is leaving."""

    __slots__ = ("held", "line", "open", "placed")

    def __init__(self, line: Taker | None) -> None:
        self.line = line
        self.open = line is not None
        self.placed = 0
        self.held: deque[Sending] = deque()
