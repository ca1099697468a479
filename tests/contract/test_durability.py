"""The contract of durability, as a gateway sees it. Each promise quotes its sentence of ports/durability.py.

Under contract now: the plane within one process. What carries it between processes joins in `DURABILITIES`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.errors import NotAMember, OutcomeUnknown, SeriatimError
from seriatim.domain.message import Draft, Receipt
from seriatim.durability.ingest import Ingest
from seriatim.engines.memory.catalog import MemoryCatalog
from seriatim.engines.memory.event_log import MemoryBroker, MemoryEventWriter
from seriatim.engines.memory.message_log import MemoryMessageLog
from seriatim.engines.memory.store import MemoryStore
from seriatim.engines.memory.system_clock import SystemClock
from seriatim.engines.memory.wire import Wire
from seriatim.ports import durability as port
from seriatim.ports.durability import Answer, Durability, PrefixPage
from seriatim.ports.event_log import MESSAGES
from tests.contract.event_engines import Suite, keep

CHAT, ANN, BOB, EVE = "chat_1", "user_ann", "user_bob", "user_eve"
SOON_S = 5.0


class DurabilityEngine:
    """A plane with one chat of Ann and Bob over a store whose answers can be withheld."""

    looks = 200

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.broker = MemoryBroker({MESSAGES: 2})
        self.clock = SystemClock()
        self.wire = WithholdingWire()

    async def open(self) -> None:
        chat = Chat(
            chat_id=CHAT,
            chat_type=ChatType.GROUP,
            name=None,
            created_by=ANN,
            created_at="",
            updated_at="",
            member_count=2,
        )
        catalog = MemoryCatalog(self.store, Wire())
        await catalog.create_group(chat, [BOB], now_ms=self.clock.now_ms(), timeout_s=SOON_S)
        self.catalog = catalog
        self.ingest = Ingest(
            log=MemoryMessageLog(self.store, self.wire),
            events=MemoryEventWriter(self.broker, Wire(), self.clock.now_ms),
            clock=self.clock,
            producer_id="contract",
        )

    async def close(self) -> None:
        await self.ingest.drain()

    async def pause(self) -> None:
        await asyncio.sleep(0)

    def plane(self) -> Durability:
        return self.ingest

    def published(self) -> int:
        return len(self.broker.records(MESSAGES))


class WithholdingWire(Wire):
    """A store that never answers a withheld operation: the caller waits until its time is up."""

    def __init__(self) -> None:
        self.withheld: str | None = None

    async def call(self, operation, apply, *, timeout_s, finish=None):  # type: ignore[no-untyped-def]
        if operation == self.withheld:
            await asyncio.sleep(timeout_s)
            raise OutcomeUnknown(f"{operation}: withheld")
        return await super().call(operation, apply, timeout_s=timeout_s, finish=finish)


SUITE: Suite[DurabilityEngine] = Suite(port)


@SUITE.promise
async def a_receipt_means_stored_and_published(engine: DurabilityEngine) -> None:
    """A `Receipt` means stored and published: nothing below can undo it."""
    seen: list[tuple[bool, int]] = []

    def answer(outcome: Receipt | SeriatimError) -> None:
        assert isinstance(outcome, Receipt)
        held = engine.store.slots(CHAT).holder(outcome.sequence)
        seen.append((held is not None and held.sequence == outcome.sequence, engine.published()))

    engine.plane().submit(draft(1), deadline=in_a_moment(engine), answer=answer)
    await until(lambda: bool(seen))
    assert seen == [(True, 1)]


@SUITE.promise
async def every_draft_is_answered_once_by_its_deadline_and_never_from_within(engine: DurabilityEngine) -> None:
    """Calls `answer` exactly once, at the latest at `deadline` (the caller's monotonic clock), never from within."""
    answers: dict[str, list[Receipt | SeriatimError]] = {}
    within = [True]

    def submit(given: Draft) -> None:
        def answer(outcome: Receipt | SeriatimError) -> None:
            assert not within[0], "answered from within submit"
            answers.setdefault(given.client_message_id, []).append(outcome)

        within[0] = True
        engine.plane().submit(given, deadline=deadline, answer=answer)
        within[0] = False

    engine.wire.withheld = "persist"
    deadline = engine.clock.monotonic() + 0.6
    for given in (draft(1), draft(2), draft(3, content=""), draft(4, sender_id=EVE)):
        submit(given)
    await until(lambda: len(answers) == 4)
    assert engine.clock.monotonic() <= deadline + 0.25
    engine.wire.withheld = None
    await asyncio.sleep(0.05)
    assert [len(each) for each in answers.values()] == [1, 1, 1, 1]
    assert not any(isinstance(each[0], Receipt) for each in answers.values())


@SUITE.promise
async def drafts_of_one_chat_keep_their_order(engine: DurabilityEngine) -> None:
    """Drafts of one chat submitted one after another are sequenced in that order, unless the earlier one fails."""
    outcomes = await send(engine, [draft(number) for number in range(120)])
    sequences = [outcome.sequence for outcome in outcomes if isinstance(outcome, Receipt)]
    assert sequences == sorted(sequences)
    assert len(sequences) == 120


@SUITE.promise
async def members_read_the_stable_prefix_and_others_nothing(engine: DurabilityEngine) -> None:
    """The stable prefix above `after`, for members only, membership checked after the read."""
    await send(engine, [draft(number) for number in range(5)])
    page = await engine.plane().read(BOB, CHAT, after=2, limit=2, timeout_s=SOON_S)
    assert ([message.sequence for message in page.messages], page.through, page.has_more) == ([3, 4], 4, True)
    with pytest.raises(NotAMember):
        await engine.plane().read(EVE, CHAT, after=0, limit=2, timeout_s=SOON_S)
    await engine.catalog.remove_member(CHAT, BOB, by=ANN, now_ms=0, timeout_s=SOON_S)
    with pytest.raises(NotAMember):
        await engine.plane().read(BOB, CHAT, after=0, limit=2, timeout_s=SOON_S)


@SUITE.promise
async def a_cursor_that_nobody_was_given_is_led_back(engine: DurabilityEngine) -> None:
    """An `after` that nobody was given, such as one beyond the end of the chat, is answered with an empty page whose
    `through` lies below it and above no hole: go on from there."""
    await send(engine, [draft(1), draft(2)])
    page = await engine.plane().read(ANN, CHAT, after=10**15, limit=10, timeout_s=SOON_S)
    assert (page.messages, page.has_more) == ((), False)
    assert page.through <= 2
    page = await engine.plane().read(ANN, CHAT, after=page.through, limit=10, timeout_s=SOON_S)
    assert page.through == 2


@SUITE.promise
async def watermarks_rise_up_to_the_newest_message_for_members_only(engine: DurabilityEngine) -> None:
    """Raises the user's watermark, bounded by the newest stored message; for members only; never lowers it."""
    await send(engine, [draft(1), draft(2), draft(3)])
    plane = engine.plane()
    await plane.acknowledge(BOB, CHAT, sequence=2, timeout_s=SOON_S)
    await plane.acknowledge(BOB, CHAT, sequence=1, timeout_s=SOON_S)
    assert engine.store.watermarks[BOB, CHAT] == 2
    await plane.acknowledge(BOB, CHAT, sequence=10**15, timeout_s=SOON_S)
    assert engine.store.watermarks[BOB, CHAT] == 3
    with pytest.raises(NotAMember):
        await plane.acknowledge(EVE, CHAT, sequence=1, timeout_s=SOON_S)
    assert (EVE, CHAT) not in engine.store.watermarks


@SUITE.promise
async def heads_tell_how_far_chats_are_published(engine: DurabilityEngine) -> None:
    """Up to where each chat is published; may lag by seconds. Unknown chats are left out."""
    assert await engine.plane().heads([CHAT, "chat_unknown"], timeout_s=SOON_S) == {CHAT: 0}
    await send(engine, [draft(1), draft(2)])
    assert await engine.plane().heads([CHAT, "chat_unknown"], timeout_s=SOON_S) == {CHAT: 2}


DURABILITIES: Sequence[Callable[[], DurabilityEngine]] = (DurabilityEngine,)


@pytest.mark.parametrize("engine", DURABILITIES)
@pytest.mark.parametrize("promise", SUITE.promises, ids=lambda promise: promise.__name__)
async def test_durability_keeps_its_promise(
    engine: Callable[[], DurabilityEngine], promise: Callable[[DurabilityEngine], object]
) -> None:
    await keep(promise, engine)  # type: ignore[arg-type]


def test_every_sentence_of_the_port_is_quoted_by_a_promise() -> None:
    assert SUITE.unquoted() == []


# --- planes that break one promise each -----------------------------------------------------------------------------


class Breaking(DurabilityEngine):
    """Hands out the real plane with one method spoiled."""

    def plane(self) -> Durability:
        return self.spoil(self.ingest)

    def spoil(self, plane: Ingest) -> Durability:
        raise AssertionError("say what is broken")


class Spoiled:
    def __init__(self, plane: Durability) -> None:
        self.plane = plane

    def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
        self.plane.submit(given, deadline=deadline, answer=answer)

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        return await self.plane.read(user_id, chat_id, after=after, limit=limit, timeout_s=timeout_s)

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        await self.plane.acknowledge(user_id, chat_id, sequence=sequence, timeout_s=timeout_s)

    async def heads(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, int]:
        return await self.plane.heads(chat_ids, timeout_s=timeout_s)


class AckingFirst(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
                receipt = Receipt(message_id="msg_hope", sequence=1, created_at="")
                asyncio.get_running_loop().call_soon(answer, receipt)
                self.plane.submit(given, deadline=deadline, answer=lambda outcome: None)

        return Plane(plane)


class AnsweringTwice(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
                def twice(outcome: Receipt | SeriatimError) -> None:
                    answer(outcome)
                    asyncio.get_running_loop().call_soon(answer, outcome)

                self.plane.submit(given, deadline=deadline, answer=twice)

        return Plane(plane)


class AnsweringNever(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
                self.plane.submit(given, deadline=deadline + 60, answer=answer)

        return Plane(plane)


class AnsweringFromWithin(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
                answer(NotAMember("at once"))

        return Plane(plane)


class Reordering(Breaking):
    held: Draft | None = None

    def spoil(self, plane: Ingest) -> Durability:
        engine = self

        class Plane(Spoiled):
            def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
                if engine.held is None:
                    engine.held = given
                    loop = asyncio.get_running_loop()
                    loop.call_later(0.05, lambda: plane.submit(given, deadline=deadline, answer=answer))
                else:
                    plane.submit(given, deadline=deadline, answer=answer)

        return Plane(plane)


class ReadingForAnyone(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
                return await self.plane.read(ANN, chat_id, after=after, limit=limit, timeout_s=timeout_s)

        return Plane(plane)


class BelievingCursors(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
                page = await self.plane.read(user_id, chat_id, after=after, limit=limit, timeout_s=timeout_s)
                return page if page.messages else PrefixPage(messages=(), through=after, has_more=False)

        return Plane(plane)


class BelievingAcks(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        engine = self

        class Plane(Spoiled):
            async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
                engine.store.put_watermark(user_id, chat_id, sequence)

        return Plane(plane)


BROKEN: Mapping[type[DurabilityEngine], str] = {
    AckingFirst: "a_receipt_means_stored_and_published",
    AnsweringTwice: "every_draft_is_answered_once_by_its_deadline_and_never_from_within",
    AnsweringNever: "every_draft_is_answered_once_by_its_deadline_and_never_from_within",
    AnsweringFromWithin: "every_draft_is_answered_once_by_its_deadline_and_never_from_within",
    Reordering: "drafts_of_one_chat_keep_their_order",
    ReadingForAnyone: "members_read_the_stable_prefix_and_others_nothing",
    BelievingCursors: "a_cursor_that_nobody_was_given_is_led_back",
    BelievingAcks: "watermarks_rise_up_to_the_newest_message_for_members_only",
}


@pytest.mark.parametrize("engine", BROKEN, ids=lambda engine: engine.__name__)
async def test_the_contract_rejects(engine: type[DurabilityEngine]) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await keep(SUITE.named(BROKEN[engine]), engine)


# --- helpers --------------------------------------------------------------------------------------------------------


def draft(number: int, *, sender_id: str = ANN, content: str = "text") -> Draft:
    return Draft(
        chat_id=CHAT,
        sender_id=sender_id,
        client_message_id=f"00000000-0000-4000-8000-{number:012x}",
        content=content,
    )


def in_a_moment(engine: DurabilityEngine) -> float:
    return engine.clock.monotonic() + SOON_S


async def send(engine: DurabilityEngine, drafts: Sequence[Draft]) -> list[Receipt | SeriatimError]:
    """The outcomes, in the order of the drafts."""
    outcomes: dict[int, Receipt | SeriatimError] = {}
    plane = engine.plane()
    for index, given in enumerate(drafts):
        answer: Answer = lambda outcome, index=index: outcomes.__setitem__(index, outcome)  # type: ignore[misc]  # noqa: E731
        plane.submit(given, deadline=in_a_moment(engine), answer=answer)
    await until(lambda: len(outcomes) == len(drafts))
    return [outcomes[index] for index in range(len(drafts))]


async def until(condition: Callable[[], bool]) -> None:
    """Real time passes: the plane's deadlines are part of the contract."""
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("waited in vain")
