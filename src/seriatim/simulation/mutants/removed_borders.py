"""More rules taken out: those that keep a fault where it is (H26)."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from seriatim.connection.session.sends import Sends
from seriatim.domain.circuit_breaker import Breaker
from seriatim.domain.errors import BreakerOpen, OutOfTime, SeriatimError
from seriatim.domain.message import Receipt
from seriatim.durability.guards import StoreGuard
from seriatim.engines.grpc.chat_router import ChatRouter
from seriatim.protocol.server_session import Submit
from seriatim.simulation.mutants.removed_rules import Patch


def one_breaker_per_gateway() -> Sequence[Patch]:
    """As it was: a gateway counts the failed drafts of all chats, and successes do not matter."""
    breakers: WeakKeyDictionary[object, Breaker] = WeakKeyDictionary()
    submit, submitted = Sends.submit, Sends._submitted

    def refusing(self: Sends, send: Submit, now: float) -> None:
        breaker = breakers.setdefault(self._services.durability, Breaker())
        wait = None if breaker.closed else breaker.admit(now)
        if wait is None:
            submit(self, send, now)
        else:
            self._rejected(BreakerOpen("no", retry_after_seconds=wait), send.echo)

    def counting(self: Sends, send: Submit, outcome: Receipt | SeriatimError) -> None:
        breaker = breakers.setdefault(self._services.durability, Breaker())
        now = self._services.clock.monotonic()
        if isinstance(outcome, SeriatimError) and outcome.trips_breaker:
            breaker.failed(now)
        elif not breaker.closed:
            breaker.succeeded(now)
        submitted(self, send, outcome)

    return [(Sends, "submit", refusing), (Sends, "_submitted", counting)]


def successes_forgive_nothing() -> Sequence[Patch]:
    """The failures of one chat add up among the successes of all others."""
    succeeded = Breaker.succeeded

    def deciding(self: Breaker, now: float) -> None:
        if not self.closed:
            succeeded(self, now)

    return [(Breaker, "succeeded", deciding)]


def one_chat_opens_the_breaker() -> Sequence[Patch]:
    return [(StoreGuard, "_failed", _every_failure)]


def lack_of_time_trips() -> Sequence[Patch]:
    """Without the rule that one chat alone shuts no door, which would hide it."""
    return [(OutOfTime, "trips_breaker", True), (StoreGuard, "_failed", _every_failure)]


def _every_failure(self: StoreGuard, chat_id: str, breaker: Breaker, began: float) -> None:
    breaker.failed(self._clock.monotonic(), since=began)


def failing_ingest_keeps_its_chats() -> Sequence[Patch]:
    """While the owner's breaker is open its chats are refused, though others could take them."""

    def stream_for(self: ChatRouter, chat_id: str) -> Any:
        if not self.ready:
            return None
        address = self._choose(chat_id, self.ready)
        wait = self._breakers[address].admit(self._clock.monotonic())
        return self._streams[address] if wait is None else BreakerOpen("no", retry_after_seconds=wait)

    return [(ChatRouter, "_stream_for", stream_for)]
