"""Callbacks that are scheduled within the same turns of the loop run together, in their order."""

import asyncio
from collections.abc import Callable
from functools import partial

from seriatim.connection.task_group import FlushScheduler
from tests.unit.connection.gateway_harness import turns


async def test_all_who_ask_within_the_given_turns_are_called_together_in_their_order() -> None:
    called: list[str] = []
    end = FlushScheduler(turns=2)
    end.schedule(lambda: called.append("first"))
    await turns(1)
    end.schedule(lambda: called.append("second"))
    await turns(1)
    assert called == []
    await turns(1)
    assert called == ["first", "second"]


async def test_a_few_are_called_at_once_and_who_joins_a_crowd_waits_with_it() -> None:
    called: list[int] = []
    end = FlushScheduler(turns=2, few=2)
    for each in (1, 2):
        end.schedule(partial(called.append, each))
    await turns(1)
    assert called == [1, 2], "a lone request waits for no others"
    for each in (3, 4, 5):
        end.schedule(partial(called.append, each))
    await turns(2)
    assert called == [1, 2]
    await turns(1)
    assert called == [1, 2, 3, 4, 5]


def test_a_call_that_fails_hurts_no_other() -> None:
    failures: list[dict[str, object]] = []
    called: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        end = FlushScheduler()
        calls: list[Callable[[], None]] = [fail, lambda: called.append("second")]
        for call in calls:
            end.schedule(call)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert called == ["second"]
    assert isinstance(failures[0]["exception"], ZeroDivisionError)
