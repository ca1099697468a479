"""What every message log promises about counters and watermarks: numbers that only grow, and no slot given twice."""

import asyncio

import pytest

from seriatim.domain.errors import CounterMissing, RowUnreadable
from seriatim.ports.message_log import Allocation, ChatCounter, DirtyChat, PublishedAhead, Watermark
from tests.contract.store_data import (
    ANN,
    BOB,
    CHAT,
    DAN,
    NOW_MS,
    T_S,
    allocate,
    counter,
    eventually,
    found_group,
    write_something,
)
from tests.contract.store_engines import StoreEngine

# --- allocate ---------------------------------------------------------------------------------------------------------


async def concurrent_allocations_get_distinct_slots(store: StoreEngine) -> None:
    """Concurrent allocations get distinct slots, each call a contiguous range above all earlier ones."""
    await found_group(store)
    counts = [1 + number % 3 for number in range(30)]
    granted = await asyncio.gather(*(allocate(store.log(), count) for count in counts))
    slots: list[int] = []
    for count, each in zip(counts, granted, strict=True):
        assert isinstance(each, Allocation)
        assert each.last - each.first + 1 == count
        slots += range(each.first, each.last + 1)
    assert sorted(slots) == list(range(1, sum(counts) + 1))


async def a_later_allocation_lies_above_all_earlier_ones(store: StoreEngine) -> None:
    """Concurrent allocations get distinct slots, each call a contiguous range above all earlier ones.

    Slots `first..last`, ours alone to fill, and the membership version they were allocated under.
    Nothing that is written afterwards survives a crash without it.
    """
    await found_group(store)
    version = (await store.catalog().members(CHAT, timeout_s=T_S)).version
    assert await allocate(store.log(), 2) == Allocation(first=1, last=2, members_version=version)
    await write_something(store)
    await store.reopen()
    assert await allocate(store.log(), 1) == Allocation(first=3, last=3, members_version=version)
    await store.catalog().leave(CHAT, BOB, now_ms=NOW_MS, timeout_s=T_S)
    assert await allocate(store.log(), 3) == Allocation(first=4, last=6, members_version=version + 1)


async def an_allocation_marks_what_is_published_and_since_when_the_chat_is_dirty(store: StoreEngine) -> None:
    """Raises `published_through` to ours, with `published_message`, and marks the chat dirty since its first
    unpublished allocation.

    `published_message` is the last of those messages: 0 when there is none, None when its writer did not know.
    """
    await found_group(store)
    before = await counter(store)
    assert before is not None
    version = before.members_version
    assert before == ChatCounter(
        allocated=0, published_through=0, published_message=0, members_version=version, dirty_at_ms=None
    )
    await allocate(store.log(), 3, now_ms=NOW_MS + 1)
    await allocate(store.log(), 1, through=3, last=2, now_ms=NOW_MS + 9)
    assert await counter(store) == ChatCounter(
        allocated=4, published_through=3, published_message=2, members_version=version, dirty_at_ms=NOW_MS + 9
    )
    await allocate(store.log(), 2, through=3, last=None, now_ms=NOW_MS + 12)
    assert await counter(store) == ChatCounter(
        allocated=6, published_through=3, published_message=None, members_version=version, dirty_at_ms=NOW_MS + 9
    )


async def who_is_behind_another_owner_gets_nothing(store: StoreEngine) -> None:
    """Another owner ahead of `published_through`: allocates nothing and says so.

    Nothing was allocated: another owner has published further than we knew.
    """
    await found_group(store)
    await allocate(store.log(), 5)
    await allocate(store.log(), 1, through=5, last=4)
    before = await counter(store)
    ahead = PublishedAhead(published_through=5, published_message=4)
    assert await allocate(store.log(), 1, through=4, last=4) == ahead
    assert await counter(store) == before
    assert isinstance(await allocate(store.log(), 1, through=5, last=4), Allocation)


async def without_a_counter_row_nothing_is_allocated(store: StoreEngine) -> None:
    """No counter row: raises `CounterMissing` and writes nothing."""
    await found_group(store)
    await found_group(store, "chat_2")
    await store.lose_counter(CHAT)
    for chat_id in (CHAT, "chat_never_created"):
        with pytest.raises(CounterMissing):
            await allocate(store.log(), chat_id=chat_id)
        assert await counter(store, chat_id) is None
    assert isinstance(await allocate(store.log(), chat_id="chat_2"), Allocation)


async def counters_are_as_of_now(store: StoreEngine) -> None:
    """Counter rows as of now; chats without one are left out."""
    for chat_id in ("chat_1", "chat_2", "chat_3"):
        await found_group(store, chat_id)
    await allocate(store.log(), 7, chat_id="chat_3")
    await store.lose_counter("chat_2")
    found = await store.log().counters(["chat_3", "chat_2", "chat_1", "chat_none"], timeout_s=T_S)
    assert {chat_id: row.allocated for chat_id, row in found.items()} == {"chat_1": 0, "chat_3": 7}


async def a_counter_that_cannot_be_read_is_not_taken_for_a_missing_one(store: StoreEngine) -> None:
    """If one cannot be read: raises `RowUnreadable`."""
    for chat_id in ("chat_1", "chat_2"):
        await found_group(store, chat_id)
    await store.damage_counter("chat_1")
    for asked in (["chat_1"], ["chat_2", "chat_1"]):
        with pytest.raises(RowUnreadable):
            await store.log().counters(asked, timeout_s=T_S)
    assert list(await store.log().counters(["chat_2"], timeout_s=T_S)) == ["chat_2"]


async def the_highest_watermark_counts_former_members_too(store: StoreEngine) -> None:
    """The highest watermark of the chat, those of former members included, 0 if there is none."""
    for chat_id in (CHAT, "chat_2"):
        await found_group(store, chat_id)
    assert await store.repair().highest_watermark(CHAT, timeout_s=T_S) == 0
    for user_id, chat_id, sequence in ((ANN, CHAT, 3), (BOB, CHAT, 7), (BOB, "chat_2", 9)):
        await store.log().acknowledge(user_id, chat_id, sequence=sequence, now_ms=NOW_MS, timeout_s=T_S)
    await store.catalog().leave(CHAT, BOB, now_ms=NOW_MS, timeout_s=T_S)
    assert await store.repair().highest_watermark(CHAT, timeout_s=T_S) == 7


# --- flush and dirty --------------------------------------------------------------------------------------------------


async def a_flush_cleans_a_chat_that_is_published_to_its_end(store: StoreEngine) -> None:
    """Marks the chat clean if every allocated slot is at or below `published_through`; says whether it did."""
    await found_group(store)
    log = store.log()
    await allocate(log, 3)
    assert await log.flush(CHAT, published_through=3, published_message=2, timeout_s=T_S)
    row = await counter(store)
    assert row is not None
    assert (row.allocated, row.published_through, row.published_message, row.dirty_at_ms) == (3, 3, 2, None)
    await allocate(log, 1, through=3, last=2, now_ms=NOW_MS + 50)
    again = await counter(store)
    assert again is not None
    assert again.dirty_at_ms == NOW_MS + 50


async def a_flush_refuses_while_something_may_be_unpublished(store: StoreEngine) -> None:
    """Marks the chat clean if every allocated slot is at or below `published_through`; says whether it did."""
    await found_group(store)
    log = store.log()
    await allocate(log, 3)
    await allocate(log, 2, through=3, last=3)
    before = await counter(store)
    for through in (2, 3, 4):
        assert not await log.flush(CHAT, published_through=through, published_message=through, timeout_s=T_S)
    assert await counter(store) == before
    await store.lose_counter(CHAT)
    assert not await log.flush(CHAT, published_through=5, published_message=5, timeout_s=T_S)
    assert await counter(store) is None


async def a_flush_never_lowers_the_published_mark(store: StoreEngine) -> None:
    """Marks the chat clean if every allocated slot is at or below `published_through`; says whether it did."""
    await found_group(store)
    await store.lose_counter(CHAT)
    assert await _recover(store, 36)  # published through 38: a repair that chose its numbers badly
    before = await counter(store)
    assert not await store.log().flush(CHAT, published_through=36, published_message=36, timeout_s=T_S)
    assert await counter(store) == before


async def dirty_chats_are_found_oldest_first(store: StoreEngine) -> None:
    """Chats dirty since before `before_ms`, oldest first."""
    log = store.log()
    for chat_id, since_ms in (("chat_1", 300), ("chat_2", 100), ("chat_3", 200), ("chat_4", 400)):
        await found_group(store, chat_id)
        await allocate(log, chat_id=chat_id, now_ms=NOW_MS + since_ms)

    async def found(before_ms: int, limit: int) -> list[DirtyChat]:
        return list(await log.dirty(before_ms=NOW_MS + before_ms, limit=limit, timeout_s=T_S))

    second, third = DirtyChat("chat_2", NOW_MS + 100), DirtyChat("chat_3", NOW_MS + 200)
    await eventually(lambda: found(400, 10), [second, third, DirtyChat("chat_1", NOW_MS + 300)])
    await eventually(lambda: found(400, 2), [second, third])
    await eventually(lambda: found(100, 10), list[DirtyChat]())


async def a_clean_chat_is_forgotten_in_time(store: StoreEngine) -> None:
    """May lag behind: a hint, not a truth."""
    await found_group(store)
    log = store.log()
    await allocate(log, 2)

    async def found() -> list[str]:
        return [each.chat_id for each in await log.dirty(before_ms=NOW_MS + 1, limit=10, timeout_s=T_S)]

    await eventually(found, [CHAT])
    assert await log.flush(CHAT, published_through=2, published_message=2, timeout_s=T_S)
    await eventually(found, list[str]())


# --- watermarks -------------------------------------------------------------------------------------------------------


async def a_stale_ack_never_lowers_the_watermark(store: StoreEngine) -> None:
    """Raises the user's watermark to `sequence`; never lowers it. Says whether it moved."""
    log = store.log()
    moved = [
        await log.acknowledge(ANN, CHAT, sequence=sequence, now_ms=NOW_MS, timeout_s=T_S)
        for sequence in (3, 3, 1, 0, 7, 6)
    ]
    assert moved == [True, False, False, False, True, False]
    await store.reopen()
    assert await store.log().watermark(ANN, CHAT, timeout_s=T_S) == 7


async def concurrent_acks_end_at_the_highest(store: StoreEngine) -> None:
    """Raises the user's watermark to `sequence`; never lowers it."""
    shuffled = [(number * 7) % 31 for number in range(1, 31)]
    await asyncio.gather(
        *(store.log().acknowledge(ANN, CHAT, sequence=each, now_ms=NOW_MS, timeout_s=T_S) for each in shuffled)
    )
    assert await store.log().watermark(ANN, CHAT, timeout_s=T_S) == 30


async def each_user_has_a_watermark_per_chat(store: StoreEngine) -> None:
    """The user's watermark as of now, 0 if there is none."""
    log = store.log()
    assert await log.acknowledge(ANN, CHAT, sequence=4, now_ms=NOW_MS, timeout_s=T_S)
    assert await log.watermark(ANN, CHAT, timeout_s=T_S) == 4
    assert await log.watermark(DAN, CHAT, timeout_s=T_S) == 0
    assert await log.watermark(ANN, "chat_2", timeout_s=T_S) == 0


async def watermarks_of_many_are_as_of_now_and_say_since_when(store: StoreEngine) -> None:
    """The watermarks of (user, chat) pairs as of now; pairs without one are left out.

    Up to where a user's devices have received a chat, and since when.
    """
    log, acks = store.log(), ((ANN, CHAT, 4, 10), (ANN, "chat_2", 9, 20), (BOB, CHAT, 2, 30), (ANN, CHAT, 5, 40))
    for user_id, chat_id, sequence, later_ms in acks:
        await log.acknowledge(user_id, chat_id, sequence=sequence, now_ms=NOW_MS + later_ms, timeout_s=T_S)
    await log.acknowledge(ANN, CHAT, sequence=3, now_ms=NOW_MS + 50, timeout_s=T_S)
    await store.reopen()
    for handle in (store.log(), store.delivery_state()):
        found = await handle.watermarks([(BOB, CHAT), (BOB, "chat_2"), (ANN, CHAT), (DAN, CHAT)], timeout_s=T_S)
        assert found == {(BOB, CHAT): Watermark(2, NOW_MS + 30), (ANN, CHAT): Watermark(5, NOW_MS + 40)}
        assert await handle.watermarks([], timeout_s=T_S) == {}


async def who_may_only_look_cannot_write(store: StoreEngine) -> None:
    """What the REST edge may read here; a handle of this type cannot write."""
    handle = store.delivery_state()
    writes = ("allocate", "persist", "seal", "flush", "acknowledge", "recover_counter", "raise_counter")
    assert [name for name in writes if hasattr(handle, name)] == []
    assert [name for name in writes if not hasattr(store.log(), name)] == []


# --- repair -----------------------------------------------------------------------------------------------------------


async def a_lost_counter_is_recovered_once(store: StoreEngine) -> None:
    """Creates the missing counter row with audit fields, dirty if anything is unpublished."""
    await found_group(store)
    await store.lose_counter(CHAT)
    rivals = range(40, 45)
    created = await asyncio.gather(*(_recover(store, allocated) for allocated in rivals))
    assert sorted(created) == [False] * 4 + [True]
    row, chosen = await counter(store), rivals[created.index(True)]
    assert row == ChatCounter(
        allocated=chosen, published_through=38, published_message=37, members_version=9, dirty_at_ms=NOW_MS
    )
    granted = await allocate(store.log(), 1, through=38, last=37)
    assert granted == Allocation(first=chosen + 1, last=chosen + 1, members_version=9)


async def a_counter_that_is_there_is_not_recovered(store: StoreEngine) -> None:
    """An existing row stays untouched, and False is returned."""
    await found_group(store)
    await allocate(store.log(), 3)
    before = await counter(store)
    assert not await _recover(store, 40)
    assert await counter(store) == before


async def a_counter_recovered_with_all_published_is_clean(store: StoreEngine) -> None:
    """Creates the missing counter row with audit fields, dirty if anything is unpublished."""
    await found_group(store)
    await store.lose_counter(CHAT)
    assert await _recover(store, 38)
    row = await counter(store)
    assert row is not None
    assert row.dirty_at_ms is None


async def a_counter_is_raised_and_never_lowered(store: StoreEngine) -> None:
    """Raises the counter; never lowers it. Says whether it moved."""
    await found_group(store)
    repair = store.repair()
    await allocate(store.log(), 5)
    assert [
        await repair.raise_counter(CHAT, allocated=allocated, now_ms=NOW_MS, timeout_s=T_S)
        for allocated in (4, 5, 9, 8)
    ] == [False, False, True, False]
    granted = await allocate(store.log())
    assert isinstance(granted, Allocation)
    assert granted.first == 10
    assert not await repair.raise_counter("chat_none", allocated=9, now_ms=NOW_MS, timeout_s=T_S)
    assert await counter(store, "chat_none") is None


async def _recover(store: StoreEngine, allocated: int) -> bool:
    return await store.repair().recover_counter(
        CHAT,
        allocated=allocated,
        published_through=38,
        published_message=37,
        members_version=9,
        now_ms=NOW_MS,
        timeout_s=T_S,
    )
