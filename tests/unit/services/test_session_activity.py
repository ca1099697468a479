"""When the use of a session is written down, and which session is forgotten first."""

from typing import Any, cast

import pytest

from seriatim.domain import limits
from seriatim.ports.accounts import Accounts
from seriatim.services.sessions import SessionActivity
from tests.support.manual_clock import ManualClock


class Written:
    """An `Accounts` that keeps which sessions were touched."""

    def __init__(self) -> None:
        self.touched: list[str] = []

    async def touch(self, session_id: str, **_: Any) -> None:
        self.touched.append(session_id)


async def test_a_session_is_written_down_again_only_when_the_interval_is_over() -> None:
    clock, written = ManualClock(), Written()
    activity = SessionActivity(cast(Accounts, written), clock)
    for passes_s in (0, limits.SESSION_TOUCH_S - 1, 1, limits.SESSION_TOUCH_S - 1):
        clock.advance(passes_s)
        await activity.touch("a")
    assert written.touched == ["a", "a"]


async def test_the_session_that_was_written_down_longest_ago_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SESSIONS_TOUCHED_MAX", 2)
    clock, written = ManualClock(), Written()
    activity = SessionActivity(cast(Accounts, written), clock)
    await activity.touch("a")
    await activity.touch("b")
    clock.advance(limits.SESSION_TOUCH_S)
    for each in ("a", "c", "a", "c", "b"):  # a is younger than b now, so c takes the place of b
        await activity.touch(each)
    assert written.touched == ["a", "b", "a", "c", "b"]
