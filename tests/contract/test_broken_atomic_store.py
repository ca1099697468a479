"""The contract of atomic commits rejects engines that break one promise each."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import pytest

from seriatim.domain.errors import SeriatimError
from seriatim.ports.atomic_store import AtomicTransaction
from seriatim.ports.event_log import Event
from seriatim.ports.message_log import ChatCounter, Entry, Key
from seriatim.simulation.stores import atomic_store as memory
from seriatim.simulation.stores.atomic_store import Begin, Done, MemoryAtomicStore, MemoryAtomicTransaction
from seriatim.simulation.stores.event_log import MemoryBroker
from tests.contract.atomic_store_engines import MemoryAtomicStoreEngine
from tests.contract.atomic_store_suite import SUITE
from tests.contract.event_engines import keep


class Breaking(MemoryAtomicStoreEngine):
    """The memory engine with one of its two parts spoiled."""

    transaction: type[MemoryAtomicTransaction] = MemoryAtomicTransaction
    kind: type[MemoryAtomicStore] = MemoryAtomicStore

    def make(self) -> MemoryAtomicStore:
        clock_ms: Callable[[], int] = lambda: 0  # noqa: E731
        return self.kind(self.memory.store, self.broker, self.wire, clock_ms)


# --- what a transaction does ------------------------------------------------------------------------------------------


class LosingKeys(Breaking):
    class transaction(MemoryAtomicTransaction):
        def write(self, broker: MemoryBroker, now_ms: int) -> None:
            self._keys.clear()
            super().write(broker, now_ms)


class LosingEvents(Breaking):
    class transaction(MemoryAtomicTransaction):
        def write(self, broker: MemoryBroker, now_ms: int) -> None:
            del self._events[1:]
            super().write(broker, now_ms)


class LosingCounters(Breaking):
    class transaction(MemoryAtomicTransaction):
        def write(self, broker: MemoryBroker, now_ms: int) -> None:
            self.counters.clear()
            super().write(broker, now_ms)


class ForgettingItself(Breaking):
    """A transaction sees the store and not its own changes."""

    class transaction(MemoryAtomicTransaction):
        def key(self, chat_id: str, client_message_id: str) -> Key | None:
            return self._store.keys.get((chat_id, client_message_id))


class RememberingWhatItExpected(Breaking):
    """The keys that were fetched at the beginning stay as they were."""

    class transaction(MemoryAtomicTransaction):
        def expect(self, keys: Sequence[tuple[str, str]]) -> None:
            self._expected = {each: super(RememberingWhatItExpected.transaction, self).key(*each) for each in keys}

        def key(self, chat_id: str, client_message_id: str) -> Key | None:
            expected: dict[tuple[str, str], Key | None] = getattr(self, "_expected", {})
            place = (chat_id, client_message_id)
            return expected[place] if place in expected else super().key(*place)


class HidingTheExpired(Breaking):
    class transaction(MemoryAtomicTransaction):
        def key(self, chat_id: str, client_message_id: str) -> Key | None:
            found = super().key(chat_id, client_message_id)
            return found if found is not None and found.expires_at_s > 2_000_000_000 else None


class FailingTogether(Breaking):
    """One damaged row fails all that is fetched with it."""

    class transaction(MemoryAtomicTransaction):
        def expect(self, keys: Sequence[tuple[str, str]]) -> None:
            for chat_id, client_message_id in keys:
                self.key(chat_id, client_message_id)


class HidingTheDamaged(Breaking):
    class transaction(MemoryAtomicTransaction):
        def counter(self, chat_id: str) -> ChatCounter | None:
            return None if chat_id in self._store.unreadable else super().counter(chat_id)


class TrustingEveryCounter(Breaking):
    class transaction(MemoryAtomicTransaction):
        def counter(self, chat_id: str) -> ChatCounter | None:
            return self.counters.get(chat_id) or self._store.counters.get(chat_id)


class KnowingEverybody(Breaking):
    class transaction(MemoryAtomicTransaction):
        def is_member(self, chat_id: str, user_id: str) -> bool:
            return True


class PublishingAtOnce(Breaking):
    """The event is in the log before the transaction is committed, and stays if it is not."""

    brokers: list[MemoryBroker] = []  # noqa: RUF012

    def make(self) -> MemoryAtomicStore:
        self.brokers[:] = [self.broker]
        return super().make()

    class transaction(MemoryAtomicTransaction):
        def add(self, entry: Entry, event: Event) -> None:
            super().add(entry, event)
            early = MemoryAtomicTransaction(self._store)
            early._events.append(self._events.pop())
            early.write(PublishingAtOnce.brokers[0], 0)


class WritingAtOnce(Breaking):
    """A transaction that fails leaves what it did until then."""

    class transaction(MemoryAtomicTransaction):
        def add(self, entry: Entry, event: Event) -> None:
            super().add(entry, event)
            self._store.fill(self._entries.popitem()[1].message)


class KeepingOldCounters(Breaking):
    """What was decided by others since the transaction was asked for is lost."""

    class kind(MemoryAtomicStore):
        def when_ready(self, begin: Begin, *, deadline: float) -> None:
            seen = dict(self._store.counters)

            def outdated(opened: AtomicTransaction | SeriatimError) -> None:
                if not isinstance(opened, SeriatimError):
                    for chat_id, row in seen.items():
                        opened.put_counter(chat_id, row)
                begin(opened)

            super().when_ready(outdated, deadline=deadline)


# --- when it begins and is done ---------------------------------------------------------------------------------------


class BeginningFromWithin(Breaking):
    class kind(MemoryAtomicStore):
        def when_ready(self, begin: Begin, *, deadline: float) -> None:
            opened = MemoryAtomicTransaction(self._store)
            begin(opened)
            super().when_ready(lambda later: _commit(later, opened.done), deadline=deadline)


class BeginningTwice(Breaking):
    class kind(MemoryAtomicStore):
        def when_ready(self, begin: Begin, *, deadline: float) -> None:
            def twice(opened: AtomicTransaction | SeriatimError) -> None:
                begin(opened)
                begin(opened)

            super().when_ready(twice, deadline=deadline)


class DoneTwice(Breaking):
    class transaction(MemoryAtomicTransaction):
        def commit(self, done: Done) -> None:
            def twice(error: SeriatimError | None) -> None:
                done(error)
                asyncio.get_running_loop().call_soon(done, error)

            super().commit(twice)


class DoneFirst(Breaking):
    """`done` does not wait for the store."""

    class transaction(MemoryAtomicTransaction):
        def commit(self, done: Done) -> None:
            done(None)
            super().commit(lambda error: None)


class WithoutDeadlines(Breaking):
    class kind(MemoryAtomicStore):
        def when_ready(self, begin: Begin, *, deadline: float) -> None:
            super().when_ready(begin, deadline=deadline + 60)


class BeginningAfterTheDeadline(Breaking):
    """What is late is done all the same."""

    class kind(MemoryAtomicStore):
        def _apply(self, request: memory._Request) -> Sequence[str]:
            request.answered = False
            return super()._apply(request)


class HalfATransaction(Breaking):
    """What it could not finish in time is left as it is."""

    class transaction(MemoryAtomicTransaction):
        def write(self, broker: MemoryBroker, now_ms: int) -> None:
            self._entries.popitem()
            super().write(broker, now_ms)


class HidingBugs(Breaking):
    class kind(MemoryAtomicStore):
        def when_ready(self, begin: Begin, *, deadline: float) -> None:
            def quiet(opened: AtomicTransaction | SeriatimError) -> None:
                with suppress(Exception):
                    begin(opened)

            super().when_ready(quiet, deadline=deadline)


class ServingWhenClosed(Breaking):
    class kind(MemoryAtomicStore):
        async def close(self) -> None:
            return


def _commit(opened: AtomicTransaction | SeriatimError, done: Done | None) -> None:
    if not isinstance(opened, SeriatimError) and done is not None:
        opened.commit(done)


BROKEN: Mapping[type[Breaking], str] = {
    LosingKeys: "all_of_a_transaction_is_there_once_it_is_done_even_if_its_process_dies",
    LosingEvents: "all_of_a_transaction_is_there_once_it_is_done_even_if_its_process_dies",
    LosingCounters: "all_of_a_transaction_is_there_once_it_is_done_even_if_its_process_dies",
    ForgettingItself: "a_transaction_finds_its_own_changes",
    RememberingWhatItExpected: "a_new_message_takes_the_place_of_an_expired_key",
    HidingTheExpired: "keys_are_found_expected_or_not_and_expired_or_not",
    FailingTogether: "a_row_that_cannot_be_read_fails_its_own_chat_only",
    HidingTheDamaged: "a_row_that_cannot_be_read_fails_its_own_chat_only",
    TrustingEveryCounter: "a_counter_that_is_missing_or_below_its_slots_is_not_trusted",
    KnowingEverybody: "a_transaction_finds_what_was_answered_before",
    PublishingAtOnce: "events_are_read_once_it_is_done_and_not_while_it_is_decided",
    WritingAtOnce: "a_transaction_without_a_commit_leaves_nothing",
    KeepingOldCounters: "transactions_and_other_changes_do_not_come_between_each_other",
    BeginningFromWithin: "begin_and_done_are_called_once_and_never_from_within",
    BeginningTwice: "begin_and_done_are_called_once_and_never_from_within",
    DoneTwice: "begin_and_done_are_called_once_and_never_from_within",
    DoneFirst: "events_are_read_once_it_is_done_and_not_while_it_is_decided",
    WithoutDeadlines: "a_transaction_that_has_not_begun_by_its_deadline_never_begins",
    BeginningAfterTheDeadline: "a_transaction_that_has_not_begun_by_its_deadline_never_begins",
    HalfATransaction: "a_transaction_of_unknown_outcome_is_there_as_a_whole_or_not_at_all",
    HidingBugs: "a_transaction_without_a_commit_leaves_nothing",
    ServingWhenClosed: "a_closed_store_refuses_and_begins_nothing",
}


@pytest.mark.parametrize("engine", BROKEN, ids=lambda engine: engine.__name__)
async def test_the_contract_rejects(engine: type[Breaking], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MemoryAtomicTransaction", engine.transaction)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await keep(SUITE.named(BROKEN[engine]), engine)
