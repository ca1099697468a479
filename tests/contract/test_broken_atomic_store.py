"""The contract of whole sends in one step rejects engines that break one promise each."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

from seriatim.domain.errors import InternalError, SeriatimError
from seriatim.ports.atomic_store import AtomicTransaction
from seriatim.ports.event_log import Event
from seriatim.ports.message_log import ChatCounter, Entry, Key
from seriatim.simulation.stores import atomic_store as memory
from seriatim.simulation.stores.atomic_store import Answer, MemoryAtomicStore, MemoryAtomicTransaction, Take
from seriatim.simulation.stores.event_log import MemoryBroker
from tests.contract.atomic_store_engines import MemoryAtomicStoreEngine
from tests.contract.atomic_store_suite import SUITE
from tests.contract.event_engines import keep


class Breaking(MemoryAtomicStoreEngine):
    """The memory engine with one of its two parts spoiled."""

    step: type[MemoryAtomicTransaction] = MemoryAtomicTransaction
    kind: type[MemoryAtomicStore] = MemoryAtomicStore

    def make(self) -> MemoryAtomicStore:
        clock_ms: Callable[[], int] = lambda: 0  # noqa: E731
        return self.kind(self.memory.store, self.broker, self.wire, clock_ms)


# --- what a step does -------------------------------------------------------------------------------------------------


class LosingKeys(Breaking):
    class step(MemoryAtomicTransaction):
        def write(self, broker: MemoryBroker, now_ms: int) -> None:
            self._keys.clear()
            super().write(broker, now_ms)


class LosingEvents(Breaking):
    class step(MemoryAtomicTransaction):
        def write(self, broker: MemoryBroker, now_ms: int) -> None:
            del self._events[1:]
            super().write(broker, now_ms)


class LosingCounters(Breaking):
    class step(MemoryAtomicTransaction):
        def write(self, broker: MemoryBroker, now_ms: int) -> None:
            self.counters.clear()
            super().write(broker, now_ms)


class ForgettingItself(Breaking):
    """A step sees the store and not what it is about to change."""

    class step(MemoryAtomicTransaction):
        def key(self, chat_id: str, client_message_id: str) -> Key | None:
            return self._store.keys.get((chat_id, client_message_id))


class RememberingWhatItExpected(Breaking):
    """The keys that were fetched at the beginning stay as they were."""

    class step(MemoryAtomicTransaction):
        def expect(self, keys: Sequence[tuple[str, str]]) -> None:
            self._expected = {each: super(RememberingWhatItExpected.step, self).key(*each) for each in keys}

        def key(self, chat_id: str, client_message_id: str) -> Key | None:
            expected: dict[tuple[str, str], Key | None] = getattr(self, "_expected", {})
            place = (chat_id, client_message_id)
            return expected[place] if place in expected else super().key(*place)


class HidingTheExpired(Breaking):
    class step(MemoryAtomicTransaction):
        def key(self, chat_id: str, client_message_id: str) -> Key | None:
            found = super().key(chat_id, client_message_id)
            return found if found is not None and found.expires_at_s > 2_000_000_000 else None


class FailingTogether(Breaking):
    """One damaged row fails all that is fetched with it."""

    class step(MemoryAtomicTransaction):
        def expect(self, keys: Sequence[tuple[str, str]]) -> None:
            for chat_id, client_message_id in keys:
                self.key(chat_id, client_message_id)


class HidingTheDamaged(Breaking):
    class step(MemoryAtomicTransaction):
        def counter(self, chat_id: str) -> ChatCounter | None:
            return None if chat_id in self._store.unreadable else super().counter(chat_id)


class TrustingEveryCounter(Breaking):
    class step(MemoryAtomicTransaction):
        def counter(self, chat_id: str) -> ChatCounter | None:
            return self.counters.get(chat_id) or self._store.counters.get(chat_id)


class KnowingEverybody(Breaking):
    class step(MemoryAtomicTransaction):
        def is_member(self, chat_id: str, user_id: str) -> bool:
            return True


class PublishingAtOnce(Breaking):
    """The event is in the log before the step is decided, whatever becomes of it."""

    brokers: list[MemoryBroker] = []  # noqa: RUF012

    def make(self) -> MemoryAtomicStore:
        self.brokers[:] = [self.broker]
        return super().make()

    class step(MemoryAtomicTransaction):
        def add(self, entry: Entry, event: Event) -> None:
            super().add(entry, event)
            early = MemoryAtomicTransaction(self._store)
            early._events.append(self._events.pop())
            early.write(PublishingAtOnce.brokers[0], 0)


class WritingAtOnce(Breaking):
    """A step that fails leaves what it did until then."""

    class step(MemoryAtomicTransaction):
        def add(self, entry: Entry, event: Event) -> None:
            super().add(entry, event)
            self._store.fill(self._entries.popitem()[1].message)


class StandingOnOldRows(Breaking):
    """What was decided by others since the question was put is lost."""

    class kind(MemoryAtomicStore):
        def ask(self, take: Take, answer: Answer, *, deadline: float) -> None:
            seen = dict(self._store.counters)

            def outdated(step: AtomicTransaction) -> None:
                for chat_id, row in seen.items():
                    step.put_counter(chat_id, row)
                take(step)

            super().ask(outdated, answer, deadline=deadline)


# --- when it is asked and answered ------------------------------------------------------------------------------------


class TakingFromWithin(Breaking):
    class kind(MemoryAtomicStore):
        def ask(self, take: Take, answer: Answer, *, deadline: float) -> None:
            take(MemoryAtomicTransaction(self._store))
            super().ask(lambda step: None, answer, deadline=deadline)


class TakingTwice(Breaking):
    class kind(MemoryAtomicStore):
        def ask(self, take: Take, answer: Answer, *, deadline: float) -> None:
            def twice(step: AtomicTransaction) -> None:
                take(step)
                take(step)

            super().ask(twice, answer, deadline=deadline)


class AnsweringTwice(Breaking):
    class kind(MemoryAtomicStore):
        def ask(self, take: Take, answer: Answer, *, deadline: float) -> None:
            def twice(error: SeriatimError | None) -> None:
                answer(error)
                asyncio.get_running_loop().call_soon(answer, error)

            super().ask(take, twice, deadline=deadline)


class AnsweringFirst(Breaking):
    """The answer does not wait for the store."""

    class kind(MemoryAtomicStore):
        def ask(self, take: Take, answer: Answer, *, deadline: float) -> None:
            asyncio.get_running_loop().call_soon(answer, None)
            super().ask(take, lambda error: None, deadline=deadline)


class Patient(Breaking):
    """Nobody's time is ever up."""

    class kind(MemoryAtomicStore):
        def ask(self, take: Take, answer: Answer, *, deadline: float) -> None:
            super().ask(take, answer, deadline=deadline + 60)


class TakingAfterTheAnswer(Breaking):
    """What is late is done all the same."""

    class kind(MemoryAtomicStore):
        def _apply(self, asked: memory._Asked) -> Sequence[str]:
            asked.answered = False
            return super()._apply(asked)


class HalfAStep(Breaking):
    """What it could not finish in time is left as it is."""

    class step(MemoryAtomicTransaction):
        def write(self, broker: MemoryBroker, now_ms: int) -> None:
            self._entries.popitem()
            super().write(broker, now_ms)


class HushingBugs(Breaking):
    class kind(MemoryAtomicStore):
        def ask(self, take: Take, answer: Answer, *, deadline: float) -> None:
            super().ask(
                take, lambda error: answer(None if isinstance(error, InternalError) else error), deadline=deadline
            )


class ServingWhenClosed(Breaking):
    class kind(MemoryAtomicStore):
        async def close(self) -> None:
            return


BROKEN: Mapping[type[Breaking], str] = {
    LosingKeys: "all_of_a_step_is_there_once_it_is_answered_even_if_its_process_dies",
    LosingEvents: "all_of_a_step_is_there_once_it_is_answered_even_if_its_process_dies",
    LosingCounters: "all_of_a_step_is_there_once_it_is_answered_even_if_its_process_dies",
    ForgettingItself: "a_step_finds_its_own_changes",
    RememberingWhatItExpected: "a_new_message_takes_the_place_of_an_expired_key",
    HidingTheExpired: "keys_are_found_expected_or_not_and_expired_or_not",
    FailingTogether: "a_row_that_cannot_be_read_costs_its_own_chat_only",
    HidingTheDamaged: "a_row_that_cannot_be_read_costs_its_own_chat_only",
    TrustingEveryCounter: "a_counter_that_is_missing_or_below_its_slots_is_not_trusted",
    KnowingEverybody: "a_step_finds_what_was_answered_before",
    PublishingAtOnce: "events_are_read_from_the_answer_on_and_not_before_the_step_is_decided",
    WritingAtOnce: "what_take_raises_is_answered_and_leaves_nothing",
    StandingOnOldRows: "steps_and_other_changes_do_not_come_between_each_other",
    TakingFromWithin: "a_step_is_taken_once_and_answered_once_and_neither_from_within",
    TakingTwice: "a_step_is_taken_once_and_answered_once_and_neither_from_within",
    AnsweringTwice: "a_step_is_taken_once_and_answered_once_and_neither_from_within",
    AnsweringFirst: "events_are_read_from_the_answer_on_and_not_before_the_step_is_decided",
    Patient: "a_step_that_is_not_decided_by_its_deadline_never_is",
    TakingAfterTheAnswer: "a_step_that_is_not_decided_by_its_deadline_never_is",
    HalfAStep: "a_step_of_unknown_outcome_is_there_as_a_whole_or_not_at_all",
    HushingBugs: "what_take_raises_is_answered_and_leaves_nothing",
    ServingWhenClosed: "a_closed_store_refuses_and_takes_nothing",
}


@pytest.mark.parametrize("engine", BROKEN, ids=lambda engine: engine.__name__)
async def test_the_contract_rejects(engine: type[Breaking], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MemoryAtomicTransaction", engine.step)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await keep(SUITE.named(BROKEN[engine]), engine)
