"""Mutants of the circuit breakers and the chat router: a fault stays where it is."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from seriatim.connection.session.sends import Sends
from seriatim.domain.circuit_breaker import CircuitBreaker
from seriatim.domain.errors import BreakerOpen, OutOfTime, SeriatimError
from seriatim.domain.message import Receipt
from seriatim.durability.guards import StoreGuard
from seriatim.engines.grpc.chat_router import ChatRouter
from seriatim.protocol.server_session import Submit
from seriatim.simulation.mutants.mutant import Patch, removes


@removes("a probe that succeeds closes the breaker", hole="H23", profile="events")
def breaker_never_closes() -> Sequence[Patch]:
    return [(CircuitBreaker, "succeeded", lambda self, now: None)]


@removes("a failure is a call of one dependency, not a draft of the gateway", hole="H26", profile="local", seeds=100)
def one_breaker_per_gateway() -> Sequence[Patch]:
    """A gateway counts the failed drafts of all chats, and successes do not matter."""
    breakers: WeakKeyDictionary[object, CircuitBreaker] = WeakKeyDictionary()
    submit, submitted = Sends.submit, Sends._submitted

    def refusing(self: Sends, send: Submit, now: float) -> None:
        breaker = breakers.setdefault(self._context.durability, CircuitBreaker())
        wait = None if breaker.closed else breaker.admit(now)
        if wait is None:
            submit(self, send, now)
        else:
            self._responder.reject(BreakerOpen("no", retry_after_seconds=wait), send.echo)

    def counting(self: Sends, send: Submit, outcome: Receipt | SeriatimError) -> None:
        breaker = breakers.setdefault(self._context.durability, CircuitBreaker())
        now = self._context.clock.monotonic()
        if isinstance(outcome, SeriatimError) and outcome.trips_breaker:
            breaker.failed(now)
        elif not breaker.closed:
            breaker.succeeded(now)
        submitted(self, send, outcome)

    return [(Sends, "submit", refusing), (Sends, "_submitted", counting)]


@removes("a success forgets the failures before it", hole="H26", profile="local", seeds=100)
def successes_forgive_nothing() -> Sequence[Patch]:
    """The failures of one chat add up among the successes of all others."""
    succeeded = CircuitBreaker.succeeded

    def deciding(self: CircuitBreaker, now: float) -> None:
        if not self.closed:
            succeeded(self, now)

    return [(CircuitBreaker, "succeeded", deciding)]


@removes("one chat's failed calls alone do not open the store's breaker", hole="H26", profile="local", seeds=100)
def one_chat_opens_the_breaker() -> Sequence[Patch]:
    return [(StoreGuard, "_failed", _every_failure)]


@removes("a chat that ran out of time says nothing about the store", hole="H26", profile="local", seeds=100)
def lack_of_time_trips() -> Sequence[Patch]:
    """Also without the rule that one chat alone opens no breaker, which would hide this one."""
    return [(OutOfTime, "trips_breaker", True), (StoreGuard, "_failed", _every_failure)]


def _every_failure(self: StoreGuard, chat_id: str, breaker: CircuitBreaker, began: float, error: SeriatimError) -> None:
    breaker.failed(self._clock.monotonic(), since=began)


@removes("chats of an ingest that keeps failing go to another one", hole="H26", profile="local", seeds=100)
def failing_ingest_keeps_its_chats() -> Sequence[Patch]:
    """While the owner's breaker is open its chats are refused, though others could take them."""

    def stream_for(self: ChatRouter, chat_id: str) -> Any:
        if not self.ready:
            return None
        address = self._choose(chat_id, self.ready)
        wait = self._breakers[address].admit(self._clock.monotonic())
        return self._streams[address] if wait is None else BreakerOpen("no", retry_after_seconds=wait)

    return [(ChatRouter, "_stream_for", stream_for)]
