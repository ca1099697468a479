"""The contract of durability, for gateways and the REST edge. Each promise quotes its sentence of ports/durability.py.

Under contract: the plane within one process, and what carries it between processes (`DURABILITIES`).
"""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from seriatim.domain.account import Session
from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.errors import NotAMember, OutcomeUnknown, SeriatimError
from seriatim.domain.message import Draft, Receipt
from seriatim.domain.times import iso
from seriatim.durability.ingest import Ingest
from seriatim.engines.grpc.dial import GrpcDialer
from seriatim.engines.grpc.discovery import StaticAddresses
from seriatim.engines.grpc.durability import GrpcDurability
from seriatim.engines.grpc.server import DurabilityServer
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports import durability as port
from seriatim.ports.atomic_store import AtomicStore
from seriatim.ports.durability import Answer, Durability, History
from seriatim.ports.event_log import MESSAGES
from seriatim.simulation.stores.atomic_store import MemoryAtomicStore
from seriatim.simulation.stores.catalog import MemoryCatalog, MemoryUserChats
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryEventWriter
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore
from tests.contract.event_engines import Suite, keep

CHAT, ANN, BOB, EVE = "chat_1", "user_ann", "user_bob", "user_eve"
SOON_S = 5.0
LOOP_TURNS = 50  # more than an answer takes once its timer has fired


class DurabilityEngine:
    """A plane with one chat of Ann and Bob over a store whose answers can be withheld."""

    looks = 200
    storing = "persist"  # the operation that stores a message

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
            atomic_store=self.atomic_store(),
            user_chats=MemoryUserChats(self.store, Wire()),
        )

    def atomic_store(self) -> AtomicStore | None:
        return None

    async def close(self) -> None:
        await self.ingest.drain()

    async def pause(self) -> None:
        await asyncio.sleep(0)

    def plane(self) -> Durability:
        return self.ingest

    def history(self) -> History:
        return self.ingest

    def published(self) -> int:
        return len(self.broker.records(MESSAGES))


class WithholdingWire(Wire):
    """A store that never answers a withheld operation: the caller waits until its time is up."""

    def __init__(self) -> None:
        self.withheld: str | None = None
        self.before: dict[str, Callable[[], None]] = {}

    async def call(self, operation, apply, *, timeout_s, finish=None):  # type: ignore[no-untyped-def]
        if operation == self.withheld:
            await asyncio.sleep(timeout_s)
            raise OutcomeUnknown(f"{operation}: withheld")
        self.before.pop(operation, lambda: None)()
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

    engine.wire.withheld = engine.storing
    deadline = engine.clock.monotonic() + 0.6
    for given in (draft(1), draft(2), draft(3, content=""), draft(4, sender_id=EVE)):
        submit(given)
    # Judged by a timer of the same loop, which a busy machine delays as much as those of the plane.
    await asyncio.sleep(deadline + 0.25 - engine.clock.monotonic())
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)
    assert len(answers) == 4
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
    """An `after` that was never given out, such as one beyond the end of the chat, is answered with an empty page whose
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


@SUITE.promise
async def the_chats_that_users_joined_lately_are_listed(engine: DurabilityEngine) -> None:
    """The chats that each user joined at or after the time given for them; users without any are left out.

    May lag behind the memberships by seconds.
    """
    now_ms = engine.clock.now_ms()
    before, after = iso(now_ms - 60_000), iso(now_ms + 60_000)
    assert await engine.plane().joined({ANN: before, BOB: after, EVE: before}, timeout_s=SOON_S) == {ANN: [CHAT]}
    assert await engine.plane().joined({}, timeout_s=SOON_S) == {}


@SUITE.promise
async def history_shows_the_newest_between_two_bounds_to_members_only(engine: DurabilityEngine) -> None:
    """What the REST edge asks of the durability plane and a gateway does not.

    The newest messages of the stable prefix between the two, both left out, for members only.

    Messages in descending order, and whether there are more below the last of them.
    """
    await send(engine, [draft(number) for number in range(9)])
    for before, after, shown, has_more in (
        (10**15, 0, [9, 8, 7], True),
        (8, 0, [7, 6, 5], True),
        (8, 4, [7, 6, 5], False),
        (3, 0, [2, 1], False),
        (5, 4, [], False),
        (1, 0, [], False),
    ):
        page = await engine.history().read_back(BOB, CHAT, before=before, after=after, limit=3, timeout_s=SOON_S)
        assert ([message.sequence for message in page.messages], page.has_more) == (shown, has_more)
    for user_id, chat_id in ((EVE, CHAT), (BOB, "chat_unknown")):
        with pytest.raises(NotAMember):
            await engine.history().read_back(user_id, chat_id, before=9, after=0, limit=3, timeout_s=SOON_S)


@SUITE.promise
async def history_shows_what_was_acknowledged_a_moment_ago(engine: DurabilityEngine) -> None:
    """Whatever was acknowledged before the call is part of the prefix."""
    for number in range(4):
        [receipt] = await send(engine, [draft(number)])
        assert isinstance(receipt, Receipt)
        page = await engine.history().read_back(ANN, CHAT, before=10**15, after=0, limit=1, timeout_s=SOON_S)
        assert [message.message_id for message in page.messages] == [receipt.message_id]


@SUITE.promise
async def who_is_removed_during_a_read_is_shown_nothing(engine: DurabilityEngine) -> None:
    """Membership is checked after the read."""
    await send(engine, [draft(1)])

    def remove() -> None:
        engine.store.drop_member(CHAT, BOB, 2)

    engine.wire.before["read_back"] = remove
    with pytest.raises(NotAMember):
        await engine.history().read_back(BOB, CHAT, before=9, after=0, limit=3, timeout_s=SOON_S)


class AtomicCommitEngine(DurabilityEngine):
    """The same plane over a store with atomic commits."""

    storing = "transaction"

    def atomic_store(self) -> AtomicStore | None:
        return MemoryAtomicStore(self.store, self.broker, self.wire, self.clock.now_ms)


class RpcEngine(DurabilityEngine):
    """The same plane behind gRPC on loopback."""

    async def open(self) -> None:
        await super().open()
        self.server = DurabilityServer(self.ingest, NoSessions(), self.clock, token="word")
        port = await self.server.start("127.0.0.1", 0)
        self.client = GrpcDurability(StaticAddresses([f"127.0.0.1:{port}"]), GrpcDialer(token="word"), self.clock)
        self.running = asyncio.create_task(self.client.run())

    async def close(self) -> None:
        self.running.cancel()
        await asyncio.wait((self.running,))
        await self.server.stop()
        await super().close()

    def plane(self) -> Durability:
        return self.client

    def history(self) -> History:
        return self.client


class NoSessions:
    async def session(self, session_id: str, *, timeout_s: float) -> Session | None:
        return None


DURABILITIES: Sequence[Callable[[], DurabilityEngine]] = (DurabilityEngine, AtomicCommitEngine, RpcEngine)


@pytest.mark.parametrize("engine", DURABILITIES)
@pytest.mark.parametrize("promise", SUITE.promises, ids=lambda promise: promise.__name__)
async def test_durability_keeps_its_promise(
    engine: Callable[[], DurabilityEngine], promise: Callable[[DurabilityEngine], object]
) -> None:
    await keep(promise, engine)  # type: ignore[arg-type]


def test_every_sentence_of_the_port_is_quoted_by_a_promise() -> None:
    assert SUITE.unquoted() == []


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
