"""What in-process revocations do at their limits."""

from seriatim.domain import limits
from seriatim.engines.inprocess.revocations import InProcessRevocations
from seriatim.ports.revocations import Verdict
from tests.support.manual_clock import ManualClock


async def test_a_full_memory_forgets_the_oldest_and_is_unsure_of_its_contemporaries_but_never_wrong() -> None:
    clock = ManualClock()
    revocations = InProcessRevocations(clock, entries_max=3)
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
    revocations = InProcessRevocations(clock, entries_max=2)
    for session_id in ("renewed", "once", "renewed", "new"):
        await revocations.revoke(session_id, None, timeout_s=1)
        clock.advance(1)
    verdicts = [await revocations.check(each, "token", 0, timeout_s=1) for each in ("renewed", "once", "new")]
    assert verdicts == [Verdict.REVOKED, Verdict.UNSURE, Verdict.REVOKED]


async def test_a_revocation_that_was_forgotten_leaves_an_overlong_token_unsure() -> None:
    clock = ManualClock()
    revocations = InProcessRevocations(clock)
    clock.advance(100)
    issued_at_s = clock.now_s()
    clock.advance(100)
    await revocations.revoke("sess_1", "token_1", timeout_s=1)
    clock.advance(limits.ACCESS_TOKEN_S + limits.TOKEN_ISSUED_LEEWAY_S)
    await revocations.revoke("sess_2", None, timeout_s=1)
    assert await revocations.check("sess_1", "token_1", issued_at_s, timeout_s=1) is Verdict.UNSURE


async def test_ended_revocations_leave_as_new_ones_come() -> None:
    clock = ManualClock()
    revocations = InProcessRevocations(clock)
    for number in range(10):
        await revocations.revoke(f"sess_{number}", f"token_{number}", timeout_s=1)
    clock.advance(limits.ACCESS_TOKEN_S + limits.TOKEN_ISSUED_LEEWAY_S)
    for number in range(25):
        await revocations.revoke("sess_x", "token_x" if number % 2 else None, timeout_s=1)
    assert len(revocations) == 2
