"""Gaps are looked at a moment later, with one timer for all of them, and read back only if they still stand."""

import asyncio
from collections.abc import Callable

import pytest

from seriatim.connection.gap_timer import GapTimer
from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, OutcomeUnknown
from tests.unit.connection.fakes import CHAT, a_receipt
from tests.unit.connection.gateway_harness import GatewayHarness, a_send, a_sync, ask, stall, turns

WAIT_S = limits.GAP_WAIT_S
STEP_S = WAIT_S / 10


class Watch:
    """Notes who was looked at, and when, counted from its own beginning."""

    def __init__(self) -> None:
        self.gap_timer = GapTimer()
        self.looks: list[tuple[str, float]] = []
        self._began = asyncio.get_running_loop().time()

    def wait(self, name: str) -> None:
        self.gap_timer.check_later(lambda: self.look(name))

    def look(self, name: str) -> None:
        self.looks.append((name, round(asyncio.get_running_loop().time() - self._began, 6)))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.looks]


def count_timers(gap_timer: GapTimer, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the timers are due that it sets from now on."""
    loop = asyncio.get_running_loop()
    original = loop.call_at
    timers: list[float] = []

    def call_at(when: float, callback: Callable[..., object], *args: object, **others: object) -> asyncio.TimerHandle:
        if getattr(callback, "__self__", None) is gap_timer:
            timers.append(when)
        return original(when, callback, *args, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_at", call_at)
    return timers


# --- the timer ----------------------------------------------------------------------------------------------------


async def test_a_gap_is_looked_at_once_after_its_wait_and_not_before() -> None:
    watch = Watch()
    watch.wait("a")
    await asyncio.sleep(WAIT_S - STEP_S)
    assert watch.looks == []
    await asyncio.sleep(1)
    assert watch.looks == [("a", WAIT_S)]


async def test_gaps_are_checked_in_order_and_each_after_a_wait_of_its_own() -> None:
    watch = Watch()
    watch.wait("a")
    watch.wait("b")
    await asyncio.sleep(STEP_S)
    watch.wait("c")
    await asyncio.sleep(1)
    assert watch.looks == [("a", WAIT_S), ("b", WAIT_S), ("c", round(WAIT_S + STEP_S, 6))]


async def test_a_thousand_gaps_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    timers = count_timers(watch.gap_timer, monkeypatch)
    for number in range(1000):
        watch.wait(str(number))
    await asyncio.sleep(1)
    assert watch.names == [str(number) for number in range(1000)]
    assert len(timers) == 1


async def test_the_timer_is_set_again_for_later_waiters_and_not_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    timers = count_timers(watch.gap_timer, monkeypatch)
    watch.wait("a")
    await asyncio.sleep(STEP_S)
    watch.wait("b")
    watch.wait("c")
    await asyncio.sleep(1)
    assert len(timers) == 2
    watch.wait("d")  # after a quiet time it is set again
    await asyncio.sleep(1)
    assert (watch.names, len(timers)) == (["a", "b", "c", "d"], 3)


async def test_a_gap_that_waits_again_when_looked_at_has_a_whole_wait_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch()
    timers = count_timers(watch.gap_timer, monkeypatch)

    def look_and_wait() -> None:
        watch.look("a")
        watch.wait("a again")

    watch.gap_timer.check_later(look_and_wait)
    watch.wait("b")
    await asyncio.sleep(1)
    assert watch.looks == [("a", WAIT_S), ("b", WAIT_S), ("a again", 2 * WAIT_S)]
    assert len(timers) == 2


async def test_close_forgets_who_waits() -> None:
    watch = Watch()
    watch.wait("a")
    watch.gap_timer.close()
    watch.gap_timer.close()
    await asyncio.sleep(1)
    assert watch.looks == []
    watch.wait("b")  # who comes afterwards is as welcome as ever
    await asyncio.sleep(1)
    assert watch.names == ["b"]


async def test_close_while_gaps_are_looked_at_spares_the_others() -> None:
    watch = Watch()
    watch.gap_timer.check_later(watch.gap_timer.close)
    watch.wait("b")
    await asyncio.sleep(1)
    assert watch.looks == []


async def test_a_check_that_fails_is_reported_and_hinders_no_other_check() -> None:
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["exception"]))
    watch, bug = Watch(), ZeroDivisionError()

    def fail() -> None:
        raise bug

    watch.gap_timer.check_later(fail)
    watch.wait("b")
    await asyncio.sleep(1)
    watch.wait("c")
    await asyncio.sleep(1)
    assert (watch.names, reports) == (["b", "c"], [bug])


# --- a gateway that is late itself --------------------------------------------------------------------------------


async def test_a_gateway_that_is_late_waits_once_more_before_it_looks() -> None:
    watch = Watch()
    watch.wait("a")
    stall(WAIT_S + 2 * limits.GAP_LATE_S)
    await turns()
    assert watch.looks == []
    await asyncio.sleep(1)
    assert watch.looks == [("a", round(2 * WAIT_S + 2 * limits.GAP_LATE_S, 6))]


async def test_a_gateway_that_is_hardly_late_looks() -> None:
    watch = Watch()
    watch.wait("a")
    stall(WAIT_S + limits.GAP_LATE_S / 2)
    await turns()
    assert watch.names == ["a"]


async def test_a_gateway_that_is_always_late_checks_gaps_all_the_same() -> None:
    watch = Watch()
    watch.wait("a")
    waits = 0
    while not watch.looks:
        assert waits < limits.GAP_WAITS_MAX, "it would never read back what is missing"
        stall(2 * WAIT_S)
        await turns()
        waits += 1
    assert waits == limits.GAP_WAITS_MAX


# --- what a look costs --------------------------------------------------------------------------------------------


async def test_a_gap_that_closed_costs_no_read_and_the_next_one_is_noticed(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.deliver(connection, 3, 2)
    harness.deliver(connection, 2, 1)
    await asyncio.sleep(1)
    assert (socket.messages, harness.durability.reads) == ([2, 3], [])
    harness.durability.chats[CHAT].append(4)  # its push is lost
    harness.deliver(connection, 5, 4)
    await asyncio.sleep(WAIT_S + STEP_S)
    assert socket.messages == [2, 3, 4, 5]


async def test_a_gap_that_moved_is_given_another_wait(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.deliver(connection, 3, 2)
    await asyncio.sleep(WAIT_S / 2)
    harness.deliver(connection, 5, 4)  # a younger gap, above the one that closes now
    harness.deliver(connection, 2, 1)
    await asyncio.sleep(WAIT_S)  # the first wait is over
    assert (socket.messages, harness.durability.reads) == ([2, 3], [])
    harness.durability.chats[CHAT] = [1, 2, 3, 4, 5]
    await asyncio.sleep(WAIT_S)
    assert (socket.messages, harness.durability.reads) == ([2, 3, 4, 5], [(CHAT, 3, limits.FILL_SLOTS_MAX)])


async def test_a_gap_that_stands_is_read_back_once_after_its_wait(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.chats[CHAT] = [1, 2]
    harness.deliver(connection, 3, 2)
    await asyncio.sleep(WAIT_S - STEP_S)
    assert harness.durability.reads == []
    await asyncio.sleep(1)
    assert (socket.messages, harness.durability.reads) == ([2, 3], [(CHAT, 1, limits.FILL_SLOTS_MAX)])


async def test_a_gap_that_moved_while_a_read_was_to_be_repeated_is_given_a_wait_and_then_read_back(
    harness: GatewayHarness,
) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.failures = [OutcomeUnknown("away")]
    harness.deliver(connection, 3, 2)
    await asyncio.sleep(WAIT_S + STEP_S)
    assert len(harness.durability.reads) == 1, "the schedule of the story: it failed, and will be repeated"
    harness.deliver(connection, 5, 4)
    harness.deliver(connection, 2, 1)
    await asyncio.sleep(limits.FILL_RETRY_S)
    assert (socket.messages, len(harness.durability.reads)) == ([2, 3], 1)
    harness.durability.chats[CHAT] = [1, 2, 3, 4, 5]
    await asyncio.sleep(WAIT_S)
    assert (socket.messages, len(harness.durability.reads)) == ([2, 3, 4, 5], 2)


async def test_an_own_message_that_closes_a_gap_lets_go_at_once_what_waited_for_it(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    await ask(connection, a_send())
    harness.deliver(connection, 3, 2)
    await turns()
    assert socket.messages == []
    harness.durability.answer(0, a_receipt(2, prev=1))
    await turns()
    assert (socket.messages, harness.durability.reads) == ([3], [])


async def test_a_gap_of_a_connection_that_closed_meanwhile_is_not_read_back(harness: GatewayHarness) -> None:
    connection, _ = await harness.synced([1])
    harness.deliver(connection, 3, None)
    connection.lost()
    await asyncio.sleep(1)
    assert harness.durability.reads == []


async def test_a_gap_that_a_sync_of_the_client_overtook_is_not_read_back_and_the_next_one_is(
    harness: GatewayHarness,
) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.chats[CHAT] = [1, 2]
    harness.deliver(connection, 3, 2)
    await ask(connection, a_sync(1))
    await asyncio.sleep(1)
    assert [message.sequence for batch in socket.batches for message in batch.messages] == [2, 3]
    assert (socket.messages, len(harness.durability.reads)) == ([], 1), "only the read of the sync itself"
    harness.durability.chats[CHAT].append(4)  # its push is lost
    harness.deliver(connection, 5, 4)
    await asyncio.sleep(WAIT_S + STEP_S)
    assert socket.messages == [4, 5]


async def test_a_gateway_that_stops_checks_no_gap_any_more(harness: GatewayHarness) -> None:
    looks: list[str] = []
    harness.gateway._context.gap_timer.check_later(lambda: looks.append("a"))
    await harness.gateway.stop()
    await asyncio.sleep(1)
    assert looks == []
    await harness.gateway.start()  # the end of every test stops it


async def test_h17_a_removed_member_is_owed_nothing_of_a_chat_that_was_never_synced(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    socket.room = False
    for sequence in range(2, limits.OUTBOUND_FRAMES_MAX + 2):
        harness.deliver(connection, sequence, sequence - 1)
    await turns()
    harness.deliver(connection, 7, 6, "chat_b")  # finds no room
    harness.durability.failures = [NotAMember("gone") for _ in range(100)]
    socket.room = True
    connection.writable()
    await asyncio.sleep(60)
    assert [read[0] for read in harness.durability.reads] == ["chat_b"], "refused once, and not asked for again"
