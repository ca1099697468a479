"""Alarms ring in order of time, each once, however often they were moved."""

from seriatim.client.timers import TimerQueue, earliest


def test_alarms_ring_in_order_of_time_and_only_once() -> None:
    alarms: TimerQueue[str] = TimerQueue()
    alarms.set("late", 3)
    alarms.set("early", 1)
    assert alarms.next() == 1
    assert alarms.due(3) == ["early", "late"]
    assert alarms.due(3) == []
    assert alarms.next() is None


def test_alarms_of_one_time_ring_in_the_order_they_were_set() -> None:
    alarms: TimerQueue[str] = TimerQueue()
    for key in ("third", "first", "second"):
        alarms.set(key, 1)
    assert alarms.due(1) == ["third", "first", "second"]


def test_a_moved_alarm_rings_at_its_new_time_only() -> None:
    alarms: TimerQueue[str] = TimerQueue()
    alarms.set("a", 1)
    alarms.set("a", 5)
    assert alarms.due(4) == []
    assert alarms.due(5) == ["a"]


def test_a_cancelled_alarm_does_not_ring() -> None:
    alarms: TimerQueue[str] = TimerQueue()
    alarms.set("a", 1)
    alarms.cancel("a")
    assert "a" not in alarms
    assert alarms.due(1) == []


def test_moving_alarms_for_ever_keeps_their_order_and_takes_no_more_room() -> None:
    alarms: TimerQueue[int] = TimerQueue()
    times: dict[int, float] = {}
    for turn in range(1000):
        key = turn % 10
        times[key] = turn * 7919 % 1000
        alarms.set(key, times[key])
        assert len(alarms._heap) < 100
        assert alarms.next() == min(times.values())
    assert alarms.due(1000) == sorted(times, key=lambda key: times[key])


def test_the_earliest_of_several_times_ignores_those_that_are_none() -> None:
    assert earliest(None, 3.0, 2.0) == 2.0
    assert earliest(None, None) is None
