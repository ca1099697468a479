"""`DirectWire`: calls without a wait, and deliveries in order."""

import asyncio

from seriatim.domain import limits
from seriatim.engines.inprocess.wire import DirectWire


async def test_a_task_that_calls_in_a_loop_lets_others_run_now_and_then() -> None:
    wire, turns = DirectWire(), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for _ in range(10 * limits.INPROCESS_CALLS_MAX):
        assert await wire.call("ask", lambda: 7, timeout_s=1) == 7
    counting.cancel()
    assert 9 <= turns <= 11


async def test_what_arrives_keeps_its_order_and_a_failing_receiver_harms_no_other() -> None:
    wire, failures = DirectWire(), list[dict[str, object]]()
    arrived: list[int] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    wire.deliver(lambda: arrived.append(1))
    wire.deliver(lambda: arrived.append(1 // 0))
    wire.deliver(lambda: arrived.append(2))
    assert arrived == [], "never from within the call"
    await asyncio.sleep(0)
    assert arrived == [1, 2]
    assert isinstance(failures[0]["exception"], ZeroDivisionError)
