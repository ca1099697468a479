"""What in-process quotas do at their limits."""

from seriatim.domain import limits
from seriatim.engines.inprocess.quotas import InProcessQuotas
from tests.support.manual_clock import ManualClock


async def test_ended_windows_leave_as_new_ones_begin() -> None:
    clock = ManualClock()
    quotas = InProcessQuotas(clock)
    for number in range(100):
        await quotas.hit(f"old_{number}", window_s=60, timeout_s=1)
    clock.advance(61)
    for number in range(100 // limits.QUOTAS_SWEPT_MAX):
        await quotas.hit(f"new_{number}", window_s=60, timeout_s=1)
    assert len(quotas) == 100 // limits.QUOTAS_SWEPT_MAX


async def test_when_full_the_window_that_ends_first_makes_room() -> None:
    clock = ManualClock()
    quotas = InProcessQuotas(clock, entries_max=3)
    for bucket, window_s in (("long", 900), ("short", 60), ("middle", 300), ("another", 600)):
        await quotas.hit(bucket, window_s=window_s, timeout_s=1)
    assert len(quotas) == 3
    counts = {bucket: (await quotas.hit(bucket, window_s=60, timeout_s=1)).count for bucket in ("long", "middle")}
    assert counts == {"long": 2, "middle": 2}
    assert (await quotas.hit("short", window_s=60, timeout_s=1)).count == 1


async def test_when_full_a_renewed_lock_outlasts_one_that_was_not() -> None:
    clock = ManualClock()
    quotas = InProcessQuotas(clock, entries_max=2)
    await quotas.lock("renewed", seconds=900, timeout_s=1)
    clock.advance(1)
    await quotas.lock("once", seconds=900, timeout_s=1)
    clock.advance(1)
    await quotas.lock("renewed", seconds=900, timeout_s=1)
    await quotas.lock("new", seconds=900, timeout_s=1)
    locked = [await quotas.locked_for_s(name, timeout_s=1) for name in ("renewed", "once", "new")]
    assert locked == [900, 0, 900]


async def test_a_sliding_window_keeps_no_more_times_than_its_limit() -> None:
    clock = ManualClock()
    quotas = InProcessQuotas(clock)
    for _ in range(1000):
        clock.advance(1)
        tally = await quotas.slide("lookups", limit=5, window_s=100, timeout_s=1)
        assert 1 <= tally.count <= 6
        assert 1 <= tally.resets_in_s <= 100
    assert len(quotas) == 1
