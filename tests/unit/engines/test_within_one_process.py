"""What engines of one process may do more cheaply than those of two: chance in advance, calls without a wait."""

import asyncio

from seriatim.domain import limits
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.wire import ShortWire


def test_no_chance_is_given_twice() -> None:
    clock = SystemClock()
    given = [clock.random_bits(80) for _ in range(5000)]
    assert len(set(given)) == len(given)
    assert max(given) < 1 << 80
    assert max(given).bit_length() > 75


def test_chance_has_as_many_bits_as_were_asked_for() -> None:
    clock = SystemClock()
    for bits in (1, 7, 8, 53, 124, 256):
        given = [clock.random_bits(bits) for _ in range(200)]
        assert min(given) >= 0
        assert max(given).bit_length() == bits
    assert all(0 <= clock.random() < 1 for _ in range(1000))


def test_two_clocks_share_no_chance() -> None:
    one, other = SystemClock(), SystemClock()
    assert one.random_bits(80) != other.random_bits(80)


async def test_who_calls_in_a_loop_lets_others_run_now_and_then() -> None:
    wire, turns = ShortWire(), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for _ in range(10 * limits.LOCAL_CALLS_MAX):
        assert await wire.call("ask", lambda: 7, timeout_s=1) == 7
    counting.cancel()
    assert 9 <= turns <= 11


async def test_what_arrives_keeps_its_order_and_a_failing_receiver_harms_no_other() -> None:
    wire, failures = ShortWire(), list[dict[str, object]]()
    arrived: list[int] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    wire.deliver(lambda: arrived.append(1))
    wire.deliver(lambda: arrived.append(1 // 0))
    wire.deliver(lambda: arrived.append(2))
    assert arrived == [], "never from within the call"
    await asyncio.sleep(0)
    assert arrived == [1, 2]
    assert isinstance(failures[0]["exception"], ZeroDivisionError)
