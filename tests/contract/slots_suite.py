"""What every message log promises about slots and keys: written once, all or nothing, seen by every later read."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from seriatim.domain import limits
from seriatim.domain.chat import Role
from seriatim.domain.errors import OutcomeUnknown
from seriatim.domain.message import Message, Sealed, Slot
from seriatim.domain.times import iso
from seriatim.ports.message_log import Cancelled, KeyTaken, SenderGone, SlotPage, SlotTaken
from tests.contract.store_data import (
    ANN,
    BOB,
    CHAT,
    CID,
    DAN,
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
    store_messages,
    write_something,
)
from tests.contract.store_engines import StoreEngine

# --- keys and roles ---------------------------------------------------------------------------------------------------


async def a_lookup_sees_all_that_was_committed_before_it(store: StoreEngine) -> None:
    """Keys, roles and the counter row as of now: whatever was committed before the call is seen.

    An idempotency key: which message this (chat, client_message_id) became, and whose it is.
    """
    await found_group(store)
    await allocate(store.log(), 3)
    stored = message(2, sender=CID)
    await store_messages(store, stored)
    found = await store.log().lookup(CHAT, [stored.client_message_id, "key-none"], [ANN, CID, DAN], timeout_s=T_S)
    assert found.keys == {stored.client_message_id: key_of(stored)}
    assert found.roles == {ANN: Role.OWNER, CID: Role.MEMBER}
    assert found.counter == await counter(store)
    assert found.counter is not None
    assert found.counter.allocated == 3


async def a_lookup_shows_expired_keys_and_misses_a_lost_counter(store: StoreEngine) -> None:
    """Present keys (expired ones too), current roles, and the counter row if it is there."""
    await found_group(store)
    stored = message(1)
    assert await persist(store.log(), entry(stored, expires_at_s=NOW_S - 1)) is None
    await store.catalog().remove_member(CHAT, BOB, by=ANN, now_ms=NOW_MS, timeout_s=T_S)
    await store.lose_counter(CHAT)
    found = await store.log().lookup(CHAT, [stored.client_message_id], [BOB, CID], timeout_s=T_S)
    assert found.keys == {stored.client_message_id: key_of(stored, expires_at_s=NOW_S - 1)}
    assert found.roles == {CID: Role.MEMBER}
    assert found.counter is None


async def keys_of_one_chat_mean_nothing_in_another(store: StoreEngine) -> None:
    """An idempotency key: which message this (chat, client_message_id) became, and whose it is."""
    await found_group(store)
    await found_group(store, "chat_2")
    await store_messages(store, message(1, key="key-same"))
    await store_messages(store, message(1, key="key-same", chat_id="chat_2"))
    found = await store.log().lookup("chat_2", ["key-same"], [], timeout_s=T_S)
    assert found.keys == {"key-same": key_of(message(1, key="key-same", chat_id="chat_2"))}


async def a_role_is_as_of_now(store: StoreEngine) -> None:
    """The user's role as of now, None for a user who is not a member."""
    await found_group(store)
    catalog, log = store.catalog(), store.log()
    assert await log.role(CHAT, ANN, timeout_s=T_S) is Role.OWNER
    assert await log.role(CHAT, DAN, timeout_s=T_S) is None
    await catalog.change_role(CHAT, BOB, Role.ADMIN, by=ANN, now_ms=NOW_MS, timeout_s=T_S)
    assert await log.role(CHAT, BOB, timeout_s=T_S) is Role.ADMIN
    await catalog.remove_member(CHAT, BOB, by=ANN, now_ms=NOW_MS, timeout_s=T_S)
    assert await log.role(CHAT, BOB, timeout_s=T_S) is None


# --- persist ----------------------------------------------------------------------------------------------------------


async def persisted_entries_survive_a_crash(store: StoreEngine) -> None:
    """Returns None once all entries are stored; else nothing was written.

    Nothing that is written afterwards, here or in the event log, survives a crash without them.
    """
    await found_group(store)
    stored = [message(1), message(2, sender=CID), message(3)]
    await store_messages(store, *stored)
    await write_something(store)
    await store.reopen()
    assert await all_slots(store) == stored
    found = await store.log().lookup(CHAT, [each.client_message_id for each in stored], [], timeout_s=T_S)
    assert list(found.keys.values()) == [key_of(each) for each in stored]


async def a_taken_key_cancels_all_of_it(store: StoreEngine) -> None:
    """A key that is there and not expired, a slot that is filled, or a sender who is no member cancels all of it.

    Nothing was written; each failed condition by the index of its entry, with what stood in the way.
    """
    await found_group(store)
    first = message(1, key="key-a")
    await store_messages(store, first)
    outcome = await persist(store.log(), entry(message(2)), entry(message(3, key="key-a", content="changed")))
    assert outcome == Cancelled((KeyTaken(1, key_of(first)),))
    assert await all_slots(store) == [first]
    found = await store.log().lookup(CHAT, ["key-a", "key-2"], [], timeout_s=T_S)
    assert found.keys == {"key-a": key_of(first)}


async def an_expired_key_counts_as_absent(store: StoreEngine) -> None:
    """A key that is there and not expired, a slot that is filled, or a sender who is no member cancels all of it."""
    await found_group(store)
    log, first, second = store.log(), message(1, key="key-a"), message(2, key="key-a")
    assert await persist(log, entry(first, expires_at_s=NOW_S + 10)) is None
    assert await persist(log, entry(second), now_s=NOW_S + 9) == Cancelled(
        (KeyTaken(0, key_of(first, expires_at_s=NOW_S + 10)),)
    )
    assert await persist(log, entry(second), now_s=NOW_S + 10) is None
    found = await log.lookup(CHAT, ["key-a"], [], timeout_s=T_S)
    assert found.keys == {"key-a": key_of(second)}
    assert await all_slots(store) == [first, second]


async def a_filled_slot_cancels_all_of_it(store: StoreEngine) -> None:
    """A key that is there and not expired, a slot that is filled, or a sender who is no member cancels all of it.

    Slots are written once, keys once until they expire; nothing here overwrites.
    """
    await found_group(store)
    log, first = store.log(), message(1)
    await store_messages(store, first)
    tombstone = await seal(log, 2)
    intruder = message(1, key="key-x", sender=CID, content="instead")
    assert await persist(log, entry(message(3)), entry(intruder)) == Cancelled((SlotTaken(1, first),))
    assert await persist(log, entry(message(2))) == Cancelled((SlotTaken(0, tombstone),))
    assert await all_slots(store) == [first, tombstone]
    assert (await log.lookup(CHAT, ["key-x", "key-2", "key-3"], [], timeout_s=T_S)).keys == {}


async def a_sender_who_is_no_member_cancels_all_of_it(store: StoreEngine) -> None:
    """A key that is there and not expired, a slot that is filled, or a sender who is no member cancels all of it."""
    await found_group(store)
    outcome = await persist(store.log(), entry(message(1)), entry(message(2, sender=DAN)))
    assert outcome == Cancelled((SenderGone(DAN),))
    assert await all_slots(store) == []
    assert (await store.log().lookup(CHAT, ["key-1", "key-2"], [], timeout_s=T_S)).keys == {}


async def every_failed_condition_is_named(store: StoreEngine) -> None:
    """Nothing was written; each failed condition by the index of its entry, with what stood in the way."""
    await found_group(store)
    log, first, second = store.log(), message(1, key="key-a"), message(2, key="key-b")
    await store_messages(store, first, second)
    outcome = await persist(
        log,
        entry(message(3)),
        entry(message(4, key="key-b")),
        entry(message(1, key="key-a")),
        entry(message(5, sender=DAN)),
    )
    expected = [KeyTaken(1, key_of(second)), KeyTaken(2, key_of(first)), SlotTaken(2, first), SenderGone(DAN)]
    assert outcome is not None
    assert sorted(outcome.causes, key=repr) == sorted(expected, key=repr)
    assert await all_slots(store) == [first, second]


async def of_concurrent_commits_of_one_key_one_wins(store: StoreEngine) -> None:
    """Slots are written once, keys once until they expire; nothing here overwrites."""
    await found_group(store)
    rivals = [message(sequence, key="key-a") for sequence in range(1, 11)]
    outcomes = await asyncio.gather(*(persist(store.log(), entry(each)) for each in rivals))
    winners = [each for each, outcome in zip(rivals, outcomes, strict=True) if outcome is None]
    assert len(winners) == 1
    assert await all_slots(store) == winners
    lost = [outcome for outcome in outcomes if outcome is not None]
    assert lost == [Cancelled((KeyTaken(0, key_of(winners[0])),))] * 9


async def of_concurrent_commits_to_one_slot_one_wins(store: StoreEngine) -> None:
    """Slots are written once, keys once until they expire; nothing here overwrites."""
    await found_group(store)
    rivals = [message(1, key=f"key-{number}", content=f"text {number}") for number in range(10)]
    outcomes = await asyncio.gather(*(persist(store.log(), entry(each)) for each in rivals))
    winners = [each for each, outcome in zip(rivals, outcomes, strict=True) if outcome is None]
    assert len(winners) == 1
    assert await all_slots(store) == winners
    found = await store.log().lookup(CHAT, [each.client_message_id for each in rivals], [], timeout_s=T_S)
    assert list(found.keys) == [winners[0].client_message_id]


# --- seal -------------------------------------------------------------------------------------------------------------


async def a_seal_fills_an_empty_slot_for_good(store: StoreEngine) -> None:
    """Fills an empty slot with a tombstone."""
    await found_group(store)
    tombstone = Sealed(chat_id=CHAT, sequence=4, created_at=iso(NOW_MS))
    assert await seal(store.log(), 4) == tombstone
    await store.reopen()
    assert await all_slots(store) == [tombstone]


async def a_seal_returns_what_came_first(store: StoreEngine) -> None:
    """Returns what the slot holds: this tombstone, or what came first."""
    await found_group(store)
    log, stored = store.log(), message(1)
    await store_messages(store, stored)
    tombstone = await seal(log, 2)
    assert await seal(log, 1, at_ms=NOW_MS + 5) == stored
    assert await seal(log, 2, at_ms=NOW_MS + 5) == tombstone
    assert await all_slots(store) == [stored, tombstone]


async def a_commit_and_a_seal_of_one_slot_agree_on_the_winner(store: StoreEngine) -> None:
    """Returns what the slot holds: this tombstone, or what came first."""
    await found_group(store)
    for sequence in range(1, 9):
        stored = message(sequence)
        calls: list[Coroutine[Any, Any, object]] = [seal(store.log(), sequence), persist(store.log(), entry(stored))]
        if sequence % 2:
            calls.reverse()
        answers = await asyncio.gather(*calls)
        held = (await store.log().read(CHAT, after=sequence - 1, limit=1, timeout_s=T_S)).slots[0]
        outcome, sealed = answers if sequence % 2 else answers[::-1]
        assert sealed == held
        assert outcome == (None if held == stored else Cancelled((SlotTaken(0, held),)))


# --- read -------------------------------------------------------------------------------------------------------------


async def a_read_ascends_and_leaves_holes_out(store: StoreEngine) -> None:
    """Filled slots above `after`, ascending, at most `limit`; whatever was committed before the call is seen.

    Filled slots in the order asked for, holes left out.
    """
    await found_group(store)
    for sequence in (5, 2, 9, 3, 10):
        await store_messages(store, message(sequence))
    tombstone = await seal(store.log(), 7)
    log = store.log()
    above_two = (message(3), message(5), tombstone, message(9), message(10))
    assert (await log.read(CHAT, after=2, limit=100, timeout_s=T_S)).slots == above_two
    assert (await log.read(CHAT, after=2, limit=4, timeout_s=T_S)).slots == above_two[:4]
    assert (await log.read(CHAT, after=0, limit=1, timeout_s=T_S)).slots == (message(2),)
    assert await log.read(CHAT, after=10, limit=100, timeout_s=T_S) == SlotPage((), more=False)
    assert await log.read("chat_none", after=0, limit=100, timeout_s=T_S) == SlotPage((), more=False)


async def a_read_back_descends_and_leaves_holes_out(store: StoreEngine) -> None:
    """Filled slots below `before`, descending, at most `limit`; whatever was committed before the call is seen.

    Filled slots in the order asked for, holes left out.
    """
    await found_group(store)
    await found_group(store, "chat_2")
    for sequence in (5, 2, 9, 3, 10):
        await store_messages(store, message(sequence))
    await store_messages(store, message(4, chat_id="chat_2"))
    tombstone = await seal(store.log(), 7)
    log = store.log()
    below_ten = (message(9), tombstone, message(5), message(3), message(2))
    assert (await log.read_back(CHAT, before=10, limit=100, timeout_s=T_S)).slots == below_ten
    assert (await log.read_back(CHAT, before=10, limit=4, timeout_s=T_S)).slots == below_ten[:4]
    assert (await log.read_back(CHAT, before=8, limit=1, timeout_s=T_S)).slots == (tombstone,)
    assert (await log.read_back(CHAT, before=10**15, limit=1, timeout_s=T_S)).slots == (message(10),)
    for nothing in (2, 1, 0):
        assert await log.read_back(CHAT, before=nothing, limit=100, timeout_s=T_S) == SlotPage((), more=False)
    assert await log.read_back("chat_none", before=10, limit=100, timeout_s=T_S) == SlotPage((), more=False)


async def pages_say_whether_the_chat_goes_on(store: StoreEngine) -> None:
    """`more`: the store has not reached the end of the chat."""
    await found_group(store)
    await store_messages(store, *[message(sequence) for sequence in range(1, 8)])
    log = store.log()
    assert (await log.read(CHAT, after=0, limit=3, timeout_s=T_S)).more
    assert (await log.read(CHAT, after=3, limit=3, timeout_s=T_S)).more
    last = await log.read(CHAT, after=6, limit=3, timeout_s=T_S)
    assert last == SlotPage((message(7),), more=False)
    assert (await log.read_back(CHAT, before=8, limit=3, timeout_s=T_S)).more
    first = await log.read_back(CHAT, before=2, limit=3, timeout_s=T_S)
    assert first == SlotPage((message(1),), more=False)


async def a_walk_through_heavy_pages_misses_nothing(store: StoreEngine) -> None:
    """`more`: the store has not reached the end of the chat."""
    await found_group(store)
    stored = [message(sequence, content="x" * limits.CONTENT_BYTES_MAX) for sequence in range(1, 301)]
    for start in range(0, 300, 30):
        await store_messages(store, *stored[start : start + 30])
    assert await all_slots(store) == stored
    assert await _all_slots_back(store, 301) == stored[::-1]


async def the_newest_message_is_no_tombstone_and_not_above_the_bound(store: StoreEngine) -> None:
    """The highest sequence at or below `at_most` that holds a message, 0 if there is none."""
    await found_group(store)
    log = store.log()
    await seal(log, 1)
    assert await log.newest_message(CHAT, at_most=100, timeout_s=T_S) == 0
    await store_messages(store, message(3), message(6))
    await seal(log, 8)
    for at_most, newest in ((2, 0), (3, 3), (5, 3), (6, 6), (100, 6)):
        for handle in (log, store.delivery_state()):
            assert await handle.newest_message(CHAT, at_most=at_most, timeout_s=T_S) == newest


async def the_newest_slot_may_be_a_tombstone(store: StoreEngine) -> None:
    """The highest filled slot, message or tombstone, 0 if there is none."""
    await found_group(store)
    repair = store.repair()
    assert await repair.newest_slot(CHAT, timeout_s=T_S) == 0
    await store_messages(store, message(3))
    assert await repair.newest_slot(CHAT, timeout_s=T_S) == 3
    await seal(store.log(), 8)
    await seal(store.log(), 7)
    assert await repair.newest_slot(CHAT, timeout_s=T_S) == 8


# --- all calls --------------------------------------------------------------------------------------------------------


async def a_call_without_time_left_ends_at_once(store: StoreEngine) -> None:
    """Every call that leaves the process takes `timeout_s` and promises: it answers within that time or raises
    `OutcomeUnknown`; `Throttled` and `Conflict` mean that nothing was applied.
    """
    await found_group(store)
    log, repair = store.log(), store.repair()
    stored: Message = message(1)
    for call in (
        lambda: log.lookup(CHAT, [], [ANN], timeout_s=0),
        lambda: log.allocate(CHAT, 1, published_through=0, published_message=0, now_ms=NOW_MS, timeout_s=0),
        lambda: log.persist(CHAT, [entry(stored)], [BOB], token="token-x", now_s=NOW_S, timeout_s=0),
        lambda: log.seal(CHAT, 1, created_at=iso(NOW_MS), timeout_s=0),
        lambda: log.read(CHAT, after=0, limit=1, timeout_s=0),
        lambda: log.read_back(CHAT, before=2, limit=1, timeout_s=0),
        lambda: log.newest_message(CHAT, at_most=1, timeout_s=0),
        lambda: log.counters([CHAT], timeout_s=0),
        lambda: log.flush(CHAT, published_through=0, published_message=0, timeout_s=0),
        lambda: log.dirty(before_ms=NOW_MS, limit=1, timeout_s=0),
        lambda: log.role(CHAT, ANN, timeout_s=0),
        lambda: log.acknowledge(ANN, CHAT, sequence=1, now_ms=NOW_MS, timeout_s=0),
        lambda: log.watermark(ANN, CHAT, timeout_s=0),
        lambda: log.watermarks([(ANN, CHAT)], timeout_s=0),
        lambda: repair.newest_slot(CHAT, timeout_s=0),
        lambda: repair.raise_counter(CHAT, allocated=1, now_ms=NOW_MS, timeout_s=0),
    ):
        assert await error_of(call) is OutcomeUnknown


async def _all_slots_back(store: StoreEngine, before: int) -> list[Slot]:
    log, found, more = store.log(), list[Slot](), True
    while more:
        page = await log.read_back(
            CHAT, before=found[-1].sequence if found else before, limit=limits.READ_SLOTS_MAX, timeout_s=T_S
        )
        assert page.slots or not page.more, "a page without slots that claims more would never end"
        found += page.slots
        more = page.more
    return found
