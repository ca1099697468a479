"""A chat that is written to faster than the table allows is named in the log, once a minute."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from seriatim.domain import limits
from seriatim.runtime.telemetry.durability_counters import DurabilityCounters
from seriatim.runtime.telemetry.hot_chats import HotChats
from seriatim.runtime.telemetry.logs import set_up


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("seriatim")
    before = root.handlers[:], root.level, ours.level
    stream = io.StringIO()
    set_up(form="json", level="info", instance="here", stream=stream)
    yield stream
    root.handlers[:], root.level, ours.level = before


def _rates(log: io.StringIO) -> list[dict[str, int]]:
    return [json.loads(line)["messages_per_chat_per_minute"] for line in log.getvalue().splitlines()]


def test_only_chats_above_the_limit_are_named_and_only_after_a_whole_minute(log: io.StringIO) -> None:
    hot = HotChats()
    hot.tick(0.0)
    hot.note({"chat_calm": limits.HOT_CHAT_PER_MINUTE_MESSAGES})
    for _ in range(limits.HOT_CHAT_PER_MINUTE_MESSAGES + 1):
        hot.note({"chat_hot": 1})
    hot.tick(59.9)
    assert _rates(log) == []
    hot.tick(60.0)
    assert _rates(log) == [{"chat_hot": limits.HOT_CHAT_PER_MINUTE_MESSAGES + 1}]


def test_each_minute_begins_at_zero_and_a_late_tick_is_spread_over_its_time(log: io.StringIO) -> None:
    hot = HotChats()
    hot.tick(0.0)
    hot.note({"chat_1": 10 * limits.HOT_CHAT_PER_MINUTE_MESSAGES})
    hot.tick(120.0)
    hot.tick(180.0)
    assert _rates(log) == [{"chat_1": 5 * limits.HOT_CHAT_PER_MINUTE_MESSAGES}]


def test_only_the_hottest_are_named_and_no_more_are_counted_than_fit(log: io.StringIO) -> None:
    hot = HotChats()
    hot.tick(0.0)
    for number in range(limits.HOT_CHATS_COUNTED_MAX + 1):
        hot.note({f"chat_{number}": 1})
    for number in range(2 * limits.HOT_CHATS_LOGGED_MAX):
        hot.note({f"chat_{number}": 1000 + number})
    assert len(hot._counts) == limits.HOT_CHATS_COUNTED_MAX
    hot.tick(60.0)
    [rates] = _rates(log)
    assert list(rates) == [
        f"chat_{number}" for number in reversed(range(limits.HOT_CHATS_LOGGED_MAX, 2 * limits.HOT_CHATS_LOGGED_MAX))
    ]


def test_what_durability_stores_is_counted_for_its_chat(log: io.StringIO) -> None:
    counts = DurabilityCounters()
    counts.hot.tick(0.0)
    counts.persisted({"chat_hot": limits.HOT_CHAT_PER_MINUTE_MESSAGES + 1})
    counts.persisted({"chat_calm": 1})
    counts.hot.tick(60.0)
    assert _rates(log) == [{"chat_hot": limits.HOT_CHAT_PER_MINUTE_MESSAGES + 1}]
