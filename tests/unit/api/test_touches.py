"""When the use of a session is written down, and which session is forgotten first."""

from typing import Any, cast

import pytest

from seriatim.api.core.dispatch import new_uuid4
from seriatim.api.sessions import SessionActivity
from seriatim.domain import limits
from seriatim.domain.ids import is_uuid4
from seriatim.ports.accounts import Accounts
from tests.support.manual_clock import ManualClock


class Written:
    """An `Accounts` that keeps which sessions were touched."""

    def __init__(self) -> None:
        self.touched: list[str] = []

    async def touch(self, session_id: str, **_: Any) -> None:
        self.touched.append(session_id)


async def test_a_session_is_written_down_again_only_when_the_interval_is_over() -> None:
    clock, written = ManualClock(), Written()
    touches = SessionActivity(cast(Accounts, written), clock)
    for passes_s in (0, limits.SESSION_TOUCH_S - 1, 1, limits.SESSION_TOUCH_S - 1):
        clock.advance(passes_s)
        await touches.used("a")
    assert written.touched == ["a", "a"]


async def test_the_session_that_was_written_down_longest_ago_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SESSIONS_TOUCHED_MAX", 2)
    clock, written = ManualClock(), Written()
    touches = SessionActivity(cast(Accounts, written), clock)
    await touches.used("a")
    await touches.used("b")
    clock.advance(limits.SESSION_TOUCH_S)
    for each in ("a", "c", "a", "c", "b"):  # a is younger than b now, so c takes the place of b
        await touches.used(each)
    assert written.touched == ["a", "b", "a", "c", "b"]


class Bits(ManualClock):
    def __init__(self, value: int) -> None:
        super().__init__()
        self._value = value

    def random_bits(self, bits: int) -> int:
        assert bits == 128
        return self._value


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (0, "00000000-0000-4000-8000-000000000000"),
        (2**128 - 1, "ffffffff-ffff-4fff-bfff-ffffffffffff"),
        (0x0123456789ABCDEF0123456789ABCDEF, "01234567-89ab-4def-8123-456789abcdef"),
    ],
)
def test_a_random_uuid_keeps_all_bits_but_version_and_variant(bits: int, text: str) -> None:
    assert new_uuid4(Bits(bits)) == text
    assert is_uuid4(text)
