"""Where the memory store is stricter than its ports ask: what a real store may do, it does, and planes must cope."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from seriatim.domain import limits
from seriatim.domain.chat import Role
from seriatim.domain.errors import CounterMissing, InternalError, OutcomeUnknown
from seriatim.domain.message import Message, Slot
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.message_log import Allocation, Cancelled, ChatCounter, DirtyChat, SenderGone, SlotTaken
from seriatim.simulation.stores.catalog import MemoryCatalog, MemoryRoster
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore, StoreObserver
from tests.contract.store_data import (
    ANN,
    BOB,
    CHAT,
    CID,
    DAN,
    LATER_MS,
    NOW_MS,
    NOW_S,
    T_S,
    all_slots,
    allocate,
    counter,
    entry,
    error_of,
    found_group,
    key_of,
    message,
    persist,
    seal,
)
from tests.contract.store_engines import MemoryEngine

T = TypeVar("T")
Attempt = Callable[[], Awaitable[object]]


class DeafWire(Wire):
    """The request arrives and is applied; the response is lost."""

    async def call(
        self,
        operation: str,
        apply: Callable[[], T],
        *,
        timeout_s: float,
        finish: Callable[[], None] | None = None,
    ) -> T:
        await super().call(operation, apply, timeout_s=timeout_s, finish=finish)
        raise OutcomeUnknown(f"{operation}: the response was lost")


class SlowWire(Wire):
    """Stands still between the commit and its end, and meanwhile hides the first row of it."""

    def __init__(self) -> None:
        self.applied = asyncio.Event()
        self.may_finish = asyncio.Event()

    async def call(
        self,
        operation: str,
        apply: Callable[[], T],
        *,
        timeout_s: float,
        finish: Callable[[], None] | None = None,
    ) -> T:
        result = apply()
        self.applied.set()
        await self.may_finish.wait()
        if finish is not None:
            finish()
        return result

    def hidden_rows(self, count: int) -> Sequence[int]:
        return [0]


@pytest.fixture
async def engine() -> MemoryEngine:
    engine = MemoryEngine()
    await found_group(engine)
    return engine


# --- what happens on the way ------------------------------------------------------------------------------------------


async def test_what_was_applied_stays_when_the_response_is_lost(engine: MemoryEngine) -> None:
    deaf, stored = MemoryMessageLog(engine.store, DeafWire()), message(1)
    with pytest.raises(OutcomeUnknown):
        await allocate(deaf, 1)
    with pytest.raises(OutcomeUnknown):
        await persist(deaf, entry(stored))
    row = await counter(engine)
    assert row is not None
    assert row.allocated == 1
    assert await all_slots(engine) == [stored]
    found = await engine.log().lookup(CHAT, [stored.client_message_id], [], timeout_s=T_S)
    assert found.keys == {stored.client_message_id: key_of(stored)}
    with pytest.raises(OutcomeUnknown):
        await MemoryCatalog(engine.store, DeafWire()).leave(CHAT, BOB, now_ms=NOW_MS, timeout_s=T_S)
    assert await engine.log().role(CHAT, BOB, timeout_s=T_S) is None


async def test_a_query_may_see_a_commit_half_way_while_conditions_see_all_of_it(engine: MemoryEngine) -> None:
    wire, log = SlowWire(), engine.log()
    first, second = message(1), message(2)
    commit = asyncio.create_task(persist(MemoryMessageLog(engine.store, wire), entry(first), entry(second)))
    await wire.applied.wait()

    assert await all_slots(engine) == [second]
    assert await log.newest_message(CHAT, at_most=1, timeout_s=T_S) == 0
    assert await seal(log, 1) == first
    assert await persist(log, entry(message(1, key="key-x"))) == Cancelled((SlotTaken(0, first),))
    assert list((await log.lookup(CHAT, ["key-1", "key-2"], [], timeout_s=T_S)).keys) == ["key-1", "key-2"]

    wire.may_finish.set()
    assert await commit is None
    assert await all_slots(engine) == [first, second]
    assert await log.newest_message(CHAT, at_most=1, timeout_s=T_S) == 1


async def test_the_newest_slot_is_hidden_half_way_too(engine: MemoryEngine) -> None:
    wire, repair = SlowWire(), engine.repair()
    commit = asyncio.create_task(persist(MemoryMessageLog(engine.store, wire), entry(message(1))))
    await wire.applied.wait()
    assert await repair.newest_slot(CHAT, timeout_s=T_S) == 0
    wire.may_finish.set()
    await commit
    assert await repair.newest_slot(CHAT, timeout_s=T_S) == 1


async def test_the_dirty_index_lags_behind_the_counter(engine: MemoryEngine) -> None:
    wire, log = SlowWire(), engine.log()
    allocation = asyncio.create_task(allocate(MemoryMessageLog(engine.store, wire)))
    await wire.applied.wait()
    row = await counter(engine)
    assert row is not None
    assert row.dirty_at_ms == NOW_MS
    assert await log.dirty(before_ms=LATER_MS, limit=10, timeout_s=T_S) == []
    wire.may_finish.set()
    await allocation
    assert await log.dirty(before_ms=LATER_MS, limit=10, timeout_s=T_S) == [DirtyChat(CHAT, NOW_MS)]


async def test_the_index_of_chats_lags_behind_the_memberships(engine: MemoryEngine) -> None:
    wire, catalog = SlowWire(), engine.catalog()
    leaving = asyncio.create_task(MemoryCatalog(engine.store, wire).leave(CHAT, BOB, now_ms=NOW_MS, timeout_s=T_S))
    await wire.applied.wait()
    assert await catalog.membership(CHAT, BOB, timeout_s=T_S) is None
    assert await catalog.chats_of(BOB, timeout_s=T_S) == [CHAT]
    wire.may_finish.set()
    await leaving
    assert await catalog.chats_of(BOB, timeout_s=T_S) == []


async def test_version_and_list_of_members_are_two_reads_within_one_time_limit(engine: MemoryEngine) -> None:
    asked: list[tuple[str, float]] = []

    class Noting(Wire):
        async def call(
            self,
            operation: str,
            apply: Callable[[], T],
            *,
            timeout_s: float,
            finish: Callable[[], None] | None = None,
        ) -> T:
            asked.append((operation, timeout_s))
            return await super().call(operation, apply, timeout_s=timeout_s, finish=finish)

    await MemoryRoster(engine.store, Noting()).members(CHAT, timeout_s=T_S)
    assert [operation for operation, _ in asked] == ["members_version", "members"]
    assert asked[1][1] < asked[0][1] == T_S


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_repeated_token_is_one_commit(engine: MemoryEngine) -> None:
    entries = [entry(message(1)), entry(message(2))]
    assert await persist(engine.log(), *entries, token="token-a") is None
    assert await persist(engine.log(), *entries, token="token-a") is None
    assert await all_slots(engine) == [message(1), message(2)]


async def test_a_token_belongs_to_one_transaction(engine: MemoryEngine) -> None:
    assert await persist(engine.log(), entry(message(1)), token="token-a") is None
    with pytest.raises(InternalError):
        await persist(engine.log(), entry(message(2)), token="token-a")
    assert await all_slots(engine) == [message(1)]


async def test_a_cancelled_transaction_is_tried_again_under_its_token(engine: MemoryEngine) -> None:
    late = entry(message(1, sender=DAN))
    assert await persist(engine.log(), late, token="token-a") == Cancelled((SenderGone(DAN),))
    await engine.catalog().add_member(CHAT, DAN, Role.MEMBER, by=ANN, now_ms=NOW_MS, timeout_s=T_S)
    assert await persist(engine.log(), late, token="token-a") is None
    assert await all_slots(engine) == [late.message]


async def test_a_token_is_forgotten_after_its_lifetime(engine: MemoryEngine) -> None:
    log, again = engine.log(), entry(message(1))
    assert await persist(log, again, token="token-a") is None
    for sequence, after_s in ((2, limits.TOKEN_LIFETIME_S - 1), (3, limits.TOKEN_LIFETIME_S)):
        assert await persist(log, again, token="token-a", now_s=NOW_S + after_s - 1) is None
        assert await persist(log, entry(message(sequence)), now_s=NOW_S + after_s) is None
    assert await persist(log, again, token="token-a", now_s=NOW_S + limits.TOKEN_LIFETIME_S) is not None


# --- our bugs ---------------------------------------------------------------------------------------------------------


async def test_a_malformed_request_is_our_bug_and_writes_nothing(engine: MemoryEngine) -> None:
    log = engine.log()

    def persisting(*stored: Message, senders: Sequence[str] = (BOB,), token: str = "token-a") -> Attempt:
        entries = [entry(each) for each in stored]
        return lambda: log.persist(CHAT, entries, senders, token=token, now_s=NOW_S, timeout_s=T_S)

    fifty = [message(sequence) for sequence in range(1, 51)]
    malformed: dict[str, Attempt] = {
        "101 items": persisting(*fifty),
        "no entry": persisting(),
        "a slot twice": persisting(message(1, key="key-a"), message(1, key="key-b")),
        "a key twice": persisting(message(1, key="key-a"), message(2, key="key-a")),
        "a sender twice": persisting(message(1), senders=(BOB, BOB)),
        "an unchecked sender": persisting(message(1), message(2, sender=CID)),
        "a foreign chat": persisting(message(1, chat_id="chat_2")),
        "slot 0": persisting(message(0)),
        "no token": persisting(message(1), token=""),
        "a long token": persisting(message(1), token="x" * 37),
        "a read too wide": lambda: log.read(CHAT, after=0, limit=limits.READ_SLOTS_MAX + 1, timeout_s=T_S),
        "a read of nothing": lambda: log.read(CHAT, after=0, limit=0, timeout_s=T_S),
        "no slots asked for": lambda: allocate(log, 0),
        "a seal of slot 0": lambda: seal(log, 0),
        "a lookup too wide": lambda: log.lookup(
            CHAT, [f"k{n}" for n in range(limits.LOOKUP_KEYS_MAX)], [], timeout_s=T_S
        ),
        "a key looked up twice": lambda: log.lookup(CHAT, ["k", "k"], [], timeout_s=T_S),
        "too many counters": lambda: log.counters([f"c{n}" for n in range(limits.LOOKUP_KEYS_MAX + 1)], timeout_s=T_S),
    }
    before = await counter(engine)
    for name, attempt in malformed.items():
        assert await error_of(attempt) is InternalError, name
    assert await persist(log, *[entry(each) for each in fifty[:49]]) is None
    assert await all_slots(engine) == fifty[:49]
    assert await counter(engine) == before


async def test_a_page_ends_where_the_limit_is_reached_without_reading_beyond(engine: MemoryEngine) -> None:
    """As in DynamoDB, whose continuation key does not say whether anything follows."""
    await persist(engine.log(), entry(message(1)), entry(message(2)))
    exact = await engine.log().read(CHAT, after=0, limit=2, timeout_s=T_S)
    assert exact.more
    rest = await engine.log().read(CHAT, after=2, limit=2, timeout_s=T_S)
    assert (rest.slots, rest.more) == ((), False)


async def test_a_heavy_page_ends_before_its_limit(engine: MemoryEngine) -> None:
    for start in range(1, 300, 30):
        heavy = [message(sequence, content="x" * limits.CONTENT_BYTES_MAX) for sequence in range(start, start + 30)]
        await persist(engine.log(), *[entry(each) for each in heavy])
    page = await engine.log().read(CHAT, after=0, limit=limits.READ_SLOTS_MAX, timeout_s=T_S)
    assert 200 < len(page.slots) < 300
    assert page.more


# --- the watcher, the accident, the clock -----------------------------------------------------------------------------


async def test_a_watcher_hears_every_write_in_order() -> None:
    heard: list[object] = []

    class Listener(StoreObserver):
        def slot_filled(self, slot: Slot) -> None:
            heard.append(slot)

        def allocated(self, chat_id: str, first: int, last: int) -> None:
            heard.append((chat_id, first, last))

        def counter_changed(self, chat_id: str, counter: ChatCounter | None) -> None:
            heard.append(counter and counter.allocated)

        def watermark(self, user_id: str, chat_id: str, sequence: int) -> None:
            heard.append((user_id, sequence))

        def membership_changed(self, chat_id: str, user_id: str, role: Role | None, version: int) -> None:
            heard.append((user_id, role, version))

    engine = MemoryEngine()
    engine.store = MemoryStore(Listener())
    log = engine.log()
    await found_group(engine, members=[BOB])
    await allocate(log, 2)
    await persist(log, entry(message(2)))
    tombstone = await seal(log, 1)
    await seal(log, 2)
    await persist(log, entry(message(2, key="key-x")))
    await log.acknowledge(BOB, CHAT, sequence=2, now_ms=NOW_MS, timeout_s=T_S)
    await log.acknowledge(BOB, CHAT, sequence=1, now_ms=NOW_MS, timeout_s=T_S)
    await engine.catalog().leave(CHAT, BOB, now_ms=NOW_MS, timeout_s=T_S)
    engine.store.lose_counter(CHAT)
    assert heard == [
        0,
        (ANN, Role.OWNER, 1),
        (BOB, Role.MEMBER, 1),
        2,
        (CHAT, 1, 2),
        message(2),
        tombstone,
        (BOB, 2),
        2,
        (BOB, None, 2),
        None,
    ]


async def test_a_lost_counter_leaves_the_dirty_index_and_all_other_rows(engine: MemoryEngine) -> None:
    log = engine.log()
    await allocate(log)
    await persist(log, entry(message(1)))
    engine.store.lose_counter(CHAT)
    engine.store.lose_counter("chat_none")
    assert await log.dirty(before_ms=LATER_MS, limit=10, timeout_s=T_S) == []
    assert await all_slots(engine) == [message(1)]
    assert await error_of(lambda: allocate(log)) is CounterMissing


async def test_a_recovery_is_kept_for_the_audit(engine: MemoryEngine) -> None:
    engine.store.lose_counter(CHAT)
    for _ in range(2):
        await engine.repair().recover_counter(
            CHAT,
            allocated=7,
            published_through=7,
            published_message=None,
            members_version=3,
            now_ms=NOW_MS,
            timeout_s=T_S,
        )
    assert [(each.chat_id, each.recovered_from, each.recovered_at_ms) for each in engine.store.recoveries] == [
        (CHAT, 7, NOW_MS)
    ]
    assert await allocate(engine.log(), through=7) == Allocation(first=8, last=8, members_version=3)


async def test_the_system_clock_agrees_with_the_event_loop() -> None:
    clock, loop = SystemClock(), asyncio.get_running_loop()
    assert loop.time() <= clock.monotonic() <= loop.time()
    assert clock.now_ms() > 1_700_000_000_000
    assert all(0 <= clock.random() < 1 for _ in range(100))
    drawn = [clock.random_bits(80) for _ in range(100)]
    assert all(0 <= each < 2**80 for each in drawn)
    assert len(dict.fromkeys(drawn)) == 100
