"""What the in-process engines do at their limits, and codes for development and tests."""

import pytest

from seriatim.domain import limits
from seriatim.domain.account import is_code
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.code_sender import FixedCodes, LogCodeSender, fixed_code, masked_phone, new_code
from seriatim.engines.inprocess.quotas import LocalQuotas
from seriatim.engines.inprocess.revocations import LocalRevocations
from seriatim.ports.revocations import Verdict
from tests.support.manual_clock import ManualClock

# --- revocations -----------------------------------------------------------------------------------------------------


async def test_a_full_memory_forgets_the_oldest_and_is_unsure_of_its_contemporaries_but_never_wrong() -> None:
    clock = ManualClock()
    revocations = LocalRevocations(clock, entries_max=3)
    clock.advance(100)
    issued: dict[int, int] = {}
    for number in range(6):
        issued[number] = clock.now_s()
        await revocations.revoke(f"sess_{number}", None, timeout_s=1)
        clock.advance(100)
    verdicts = [await revocations.check(f"sess_{n}", "token", issued[n], timeout_s=1) for n in range(6)]
    assert verdicts == [Verdict.UNSURE] * 3 + [Verdict.REVOKED] * 3
    assert await revocations.check("sess_x", "token", issued[2], timeout_s=1) is Verdict.UNSURE
    assert await revocations.check("sess_x", "token", issued[3], timeout_s=1) is Verdict.CLEAR


async def test_when_full_a_revocation_that_was_renewed_outlasts_an_older_one() -> None:
    clock = ManualClock()
    revocations = LocalRevocations(clock, entries_max=2)
    for session_id in ("renewed", "once", "renewed", "new"):
        await revocations.revoke(session_id, None, timeout_s=1)
        clock.advance(1)
    verdicts = [await revocations.check(each, "token", 0, timeout_s=1) for each in ("renewed", "once", "new")]
    assert verdicts == [Verdict.REVOKED, Verdict.UNSURE, Verdict.REVOKED]


async def test_a_revocation_that_was_forgotten_leaves_an_overlong_token_unsure() -> None:
    clock = ManualClock()
    revocations = LocalRevocations(clock)
    clock.advance(100)
    issued_at_s = clock.now_s()
    clock.advance(100)
    await revocations.revoke("sess_1", "token_1", timeout_s=1)
    clock.advance(limits.ACCESS_TOKEN_S + limits.TOKEN_ISSUED_LEEWAY_S)
    await revocations.revoke("sess_2", None, timeout_s=1)
    assert await revocations.check("sess_1", "token_1", issued_at_s, timeout_s=1) is Verdict.UNSURE


async def test_ended_revocations_leave_as_new_ones_come() -> None:
    clock = ManualClock()
    revocations = LocalRevocations(clock)
    for number in range(10):
        await revocations.revoke(f"sess_{number}", f"token_{number}", timeout_s=1)
    clock.advance(limits.ACCESS_TOKEN_S + limits.TOKEN_ISSUED_LEEWAY_S)
    for number in range(25):
        await revocations.revoke("sess_x", "token_x" if number % 2 else None, timeout_s=1)
    assert len(revocations) == 2


# --- quotas ----------------------------------------------------------------------------------------------------------


async def test_ended_windows_leave_as_new_ones_begin() -> None:
    clock = ManualClock()
    quotas = LocalQuotas(clock)
    for number in range(100):
        await quotas.hit(f"old_{number}", window_s=60, timeout_s=1)
    clock.advance(61)
    for number in range(100 // limits.QUOTAS_SWEPT_MAX):
        await quotas.hit(f"new_{number}", window_s=60, timeout_s=1)
    assert len(quotas) == 100 // limits.QUOTAS_SWEPT_MAX


async def test_when_full_the_window_that_ends_first_makes_room() -> None:
    clock = ManualClock()
    quotas = LocalQuotas(clock, entries_max=3)
    for bucket, window_s in (("long", 900), ("short", 60), ("middle", 300), ("another", 600)):
        await quotas.hit(bucket, window_s=window_s, timeout_s=1)
    assert len(quotas) == 3
    counts = {bucket: (await quotas.hit(bucket, window_s=60, timeout_s=1)).count for bucket in ("long", "middle")}
    assert counts == {"long": 2, "middle": 2}
    assert (await quotas.hit("short", window_s=60, timeout_s=1)).count == 1


async def test_when_full_a_renewed_lock_outlasts_one_that_was_not() -> None:
    clock = ManualClock()
    quotas = LocalQuotas(clock, entries_max=2)
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
    quotas = LocalQuotas(clock)
    for _ in range(1000):
        clock.advance(1)
        tally = await quotas.slide("lookups", limit=5, window_s=100, timeout_s=1)
        assert 1 <= tally.count <= 6
        assert 1 <= tally.resets_in_s <= 100
    assert len(quotas) == 1


# --- codes -----------------------------------------------------------------------------------------------------------


async def test_the_console_shows_the_code_and_only_the_edges_of_the_number() -> None:
    lines: list[str] = []
    await LogCodeSender(lines.append).send("+4915112345678", "012345")
    assert lines == ["one-time code for +49*********78: 012345"]


async def test_nothing_is_sent_where_everyone_knows_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    await FixedCodes().send("+4915112345678", "000000")
    assert capsys.readouterr().out == ""
    assert fixed_code(SystemClock()) == "000000"


@pytest.mark.parametrize(
    ("number", "masked"),
    [
        ("+12025550123", "+1********23"),
        ("+79161234567", "+7********67"),
        ("+4915112345678", "+49*********78"),
        ("+353861234567", "+353*******67"),
        ("+8613812345678", "+86*********78"),
        ("+85212345678", "+852******78"),
        ("+9711234567", "+971*****67"),
        ("+1234567", "+1****67"),
        ("+", "***"),
        ("not a number", "***"),
        ("+0123456789", "***"),
    ],
)
def test_a_masked_number_keeps_its_country_and_two_digits(number: str, masked: str) -> None:
    assert masked_phone(number) == masked


def test_codes_have_six_digits_and_all_are_possible() -> None:
    class Chosen(SystemClock):
        bits = 0

        def random_bits(self, bits: int) -> int:
            assert bits >= 64, "too few bits make some codes likelier than others"
            return self.bits

    clock = Chosen()
    for clock.bits, code in ((0, "000000"), (7, "000007"), (999_999, "999999"), (2**127 + 1_000_000, "105728")):
        assert new_code(clock) == code
    codes = [new_code(SystemClock()) for _ in range(3000)]
    assert all(is_code(code) for code in codes)
    assert [sum(code[place] == digit for code in codes) > 200 for place in range(6) for digit in "0123456789"] == (
        [True] * 60
    )
