"""The contract of the quotas. Each promise quotes its sentence of ports/quotas.py."""

from collections.abc import Awaitable, Callable

import pytest

from seriatim.domain.errors import OutcomeUnknown
from seriatim.ports import quotas as port
from seriatim.ports.quotas import Tally
from tests.contract.edge_engines import QUOTAS, QuotasEngine
from tests.contract.event_engines import SOON_S, Suite, keep

SUITE: Suite[QuotasEngine] = Suite(port)


@SUITE.promise
async def hits_are_counted_per_bucket(engine: QuotasEngine) -> None:
    """Counts one."""
    assert [await hit(engine, "a"), await hit(engine, "a"), await hit(engine, "b")] == [1, 2, 1]


@SUITE.promise
async def a_window_begins_with_its_first_hit_and_no_later_one_prolongs_it(engine: QuotasEngine) -> None:
    """The first hit of a bucket begins its window; after the window it counts from 1 again."""
    quotas = engine.quotas()
    assert await quotas.hit("a", window_s=60, timeout_s=SOON_S) == Tally(1, 60)
    await engine.advance(40)
    assert await quotas.hit("a", window_s=60, timeout_s=SOON_S) == Tally(2, 20)
    await engine.advance(21)
    assert await quotas.hit("a", window_s=60, timeout_s=SOON_S) == Tally(1, 60)


@SUITE.promise
async def hits_beyond_any_limit_are_still_counted(engine: QuotasEngine) -> None:
    """Counts one."""
    assert [await hit(engine, "a") for _ in range(50)] == list(range(1, 51))


@SUITE.promise
async def a_sliding_window_is_full_until_its_oldest_leaves(engine: QuotasEngine) -> None:
    """Counts one unless there were `limit` within the last `window_s`; then the count is `limit` + 1.

    `resets_in_s` is when the oldest of them leaves the window.
    """
    assert await slide(engine) == Tally(1, 3600)
    await engine.advance(600)
    assert await slide(engine) == Tally(2, 3000)
    assert await slide(engine) == Tally(3, 3000)
    assert await slide(engine) == Tally(4, 3000)
    await engine.advance(2990)
    assert await slide(engine) == Tally(4, 10)
    await engine.advance(11)
    assert await slide(engine) == Tally(3, 599)
    await engine.advance(3601)
    assert await slide(engine) == Tally(1, 3600)


@SUITE.promise
async def what_was_refused_takes_no_place_in_a_sliding_window(engine: QuotasEngine) -> None:
    """Counts one unless there were `limit` within the last `window_s`; then the count is `limit` + 1."""
    for _ in range(3):
        await slide(engine)
    await engine.advance(1800)
    for _ in range(5):
        assert (await slide(engine)).count == 4
    await engine.advance(1801)
    assert (await slide(engine)).count == 1


@SUITE.promise
async def buckets_slide_apart_and_apart_from_fixed_windows(engine: QuotasEngine) -> None:
    """Counts one unless there were `limit` within the last `window_s`; then the count is `limit` + 1."""
    for _ in range(4):
        await slide(engine)
    assert (await slide(engine, "other")).count == 1
    assert await hit(engine, "lookups") == 1


@SUITE.promise
async def a_lock_ends_by_itself(engine: QuotasEngine) -> None:
    """How many seconds it is still locked, 0 if it is not."""
    quotas = engine.quotas()
    assert await quotas.locked_for_s("phone", timeout_s=SOON_S) == 0
    await quotas.lock("phone", seconds=900, timeout_s=SOON_S)
    assert await quotas.locked_for_s("phone", timeout_s=SOON_S) == 900
    assert await quotas.locked_for_s("another", timeout_s=SOON_S) == 0
    await engine.advance(890)
    assert await quotas.locked_for_s("phone", timeout_s=SOON_S) == 10
    await engine.advance(11)
    assert await quotas.locked_for_s("phone", timeout_s=SOON_S) == 0


@SUITE.promise
async def a_second_lock_replaces_the_first(engine: QuotasEngine) -> None:
    """Locked from now on for that long; locking again starts the time again."""
    quotas = engine.quotas()
    await quotas.lock("phone", seconds=900, timeout_s=SOON_S)
    await engine.advance(600)
    await quotas.lock("phone", seconds=900, timeout_s=SOON_S)
    assert await quotas.locked_for_s("phone", timeout_s=SOON_S) == 900
    await engine.advance(899)
    assert await quotas.locked_for_s("phone", timeout_s=SOON_S) == 1


@SUITE.promise
async def an_answer_in_the_last_fraction_of_a_window_is_never_zero(engine: QuotasEngine) -> None:
    """How many seconds it is still locked, 0 if it is not."""
    quotas = engine.quotas()
    await quotas.lock("phone", seconds=10, timeout_s=SOON_S)
    await quotas.hit("a", window_s=10, timeout_s=SOON_S)
    await engine.advance(9.05)  # the rest is for a real engine on a slow machine
    assert await quotas.locked_for_s("phone", timeout_s=SOON_S) == 1
    assert await quotas.hit("a", window_s=10, timeout_s=SOON_S) == Tally(2, 1)


@SUITE.promise
async def without_time_left_nothing_is_counted(engine: QuotasEngine) -> None:
    """Counts one."""
    quotas = engine.quotas()
    for call in (
        quotas.hit("a", window_s=60, timeout_s=0),
        quotas.slide("lookups", limit=3, window_s=3600, timeout_s=0),
        quotas.lock("phone", seconds=900, timeout_s=0),
        quotas.locked_for_s("phone", timeout_s=0),
    ):
        with pytest.raises(OutcomeUnknown):
            await call
    assert await hit(engine, "a") == 1
    assert (await slide(engine)).count == 1
    assert await quotas.locked_for_s("phone", timeout_s=SOON_S) == 0


@pytest.mark.parametrize("make", QUOTAS)
@pytest.mark.parametrize("promise", SUITE.promises)
async def test_the_quotas_keep_their_promise(
    promise: Callable[[QuotasEngine], Awaitable[None]], make: Callable[[], QuotasEngine]
) -> None:
    await keep(promise, make)


def test_every_sentence_of_the_port_is_quoted() -> None:
    assert SUITE.unquoted() == []


async def hit(engine: QuotasEngine, bucket: str) -> int:
    return (await engine.quotas().hit(bucket, window_s=60, timeout_s=SOON_S)).count


async def slide(engine: QuotasEngine, bucket: str = "lookups") -> Tally:
    return await engine.quotas().slide(bucket, limit=3, window_s=3600, timeout_s=SOON_S)
