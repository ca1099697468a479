"""The contract of the revocations. Each promise quotes its sentence of ports/revocations.py."""

from collections.abc import Awaitable, Callable

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.ports import revocations as port
from seriatim.ports.revocations import Verdict
from tests.contract.edge_engines import REVOCATIONS, RevocationsEngine
from tests.contract.event_engines import SOON_S, Suite, keep

SUITE: Suite[RevocationsEngine] = Suite(port)
A_WHILE_S = 2 * limits.TOKEN_ISSUED_LEEWAY_S


@SUITE.promise
async def a_revoked_session_takes_all_its_tokens_along(engine: RevocationsEngine) -> None:
    """From now on both are `REVOKED`, for as long as any token of that session can live."""
    await engine.advance(A_WHILE_S)
    await engine.revocations().revoke("sess_1", None, timeout_s=SOON_S)
    assert await check(engine, "sess_1", "token_1") is Verdict.REVOKED
    assert await check(engine, "sess_1", "token_2") is Verdict.REVOKED


@SUITE.promise
async def a_revoked_token_is_known_by_its_own_name_too(engine: RevocationsEngine) -> None:
    """From now on both are `REVOKED`, for as long as any token of that session can live."""
    await engine.advance(A_WHILE_S)
    await engine.revocations().revoke("sess_1", "token_1", timeout_s=SOON_S)
    assert await check(engine, "sess_1", "token_2") is Verdict.REVOKED
    assert await check(engine, "sess_2", "token_1") is Verdict.REVOKED


@SUITE.promise
async def others_stay_clear(engine: RevocationsEngine) -> None:
    """From now on both are `REVOKED`, for as long as any token of that session can live."""
    await engine.advance(A_WHILE_S)
    await engine.revocations().revoke("sess_1", "token_1", timeout_s=SOON_S)
    assert await check(engine, "sess_2", "token_2") is Verdict.CLEAR
    assert await check(engine, "token_1", "sess_1") is Verdict.CLEAR


@SUITE.promise
async def a_revocation_outlives_every_token_of_the_session(engine: RevocationsEngine) -> None:
    """From now on both are `REVOKED`, for as long as any token of that session can live."""
    await engine.advance(A_WHILE_S)
    issued_at_s = engine.now_s()
    await engine.revocations().revoke("sess_1", "token_1", timeout_s=SOON_S)
    await engine.advance(limits.ACCESS_TOKEN_S - 1)
    await engine.revocations().revoke("sess_other", "token_other", timeout_s=SOON_S)
    assert await check(engine, "sess_1", "token_2", issued_at_s) is Verdict.REVOKED
    assert await check(engine, "sess_2", "token_1", issued_at_s) is Verdict.REVOKED


@SUITE.promise
async def revoking_again_begins_anew(engine: RevocationsEngine) -> None:
    """From now on both are `REVOKED`, for as long as any token of that session can live."""
    await engine.advance(A_WHILE_S)
    for _ in range(2):
        await engine.revocations().revoke("sess_1", None, timeout_s=SOON_S)
        await engine.advance(limits.ACCESS_TOKEN_S - 1)
    await engine.revocations().revoke("sess_other", None, timeout_s=SOON_S)
    assert await check(engine, "sess_1", "token_1") is Verdict.REVOKED


@SUITE.promise
async def an_empty_memory_vouches_for_nothing_that_is_older(engine: RevocationsEngine) -> None:
    """`CLEAR` only for a token issued after this store began to remember; an older one is `UNSURE`."""
    assert await check(engine, "sess_1", "token_1", engine.now_s() - 1) is Verdict.UNSURE
    await engine.advance(A_WHILE_S)
    assert await check(engine, "sess_1", "token_1", engine.now_s() - A_WHILE_S - 1) is Verdict.UNSURE
    assert await check(engine, "sess_1", "token_1", engine.now_s()) is Verdict.CLEAR


@SUITE.promise
async def what_was_revoked_before_a_loss_is_not_clear_after_it(engine: RevocationsEngine) -> None:
    """`CLEAR` only for a token issued after this store began to remember; an older one is `UNSURE`."""
    await engine.advance(A_WHILE_S)
    issued_at_s = engine.now_s()
    assert await check(engine, "sess_1", "token_1", issued_at_s) is Verdict.CLEAR
    await engine.advance(A_WHILE_S)
    await engine.revocations().revoke("sess_1", "token_1", timeout_s=SOON_S)
    await engine.wipe()
    assert await check(engine, "sess_1", "token_1", issued_at_s) is Verdict.UNSURE


@SUITE.promise
async def a_token_from_a_machine_with_a_fast_clock_is_not_taken_for_younger_than_the_memory(
    engine: RevocationsEngine,
) -> None:
    """`CLEAR` only for a token issued after this store began to remember; an older one is `UNSURE`."""
    issued_at_s = engine.now_s() + limits.TOKEN_ISSUED_LEEWAY_S - 2
    await engine.revocations().revoke("sess_1", "token_1", timeout_s=SOON_S)
    await engine.wipe()
    assert await check(engine, "sess_1", "token_1", issued_at_s) is Verdict.UNSURE


@SUITE.promise
async def without_time_left_nothing_is_said(engine: RevocationsEngine) -> None:
    """From now on both are `REVOKED`, for as long as any token of that session can live."""
    with pytest.raises(OutcomeUnknown):
        await engine.revocations().check("sess_1", "token_1", engine.now_s(), timeout_s=0)
    with pytest.raises(OutcomeUnknown):
        await engine.revocations().revoke("sess_1", "token_1", timeout_s=0)


@pytest.mark.parametrize("make", REVOCATIONS)
@pytest.mark.parametrize("promise", SUITE.promises)
async def test_the_revocations_keep_their_promise(
    promise: Callable[[RevocationsEngine], Awaitable[None]], make: Callable[[], RevocationsEngine]
) -> None:
    await keep(promise, make)


def test_every_sentence_of_the_port_is_quoted() -> None:
    assert SUITE.unquoted() == []


async def check(engine: RevocationsEngine, session_id: str, token_id: str, issued_at_s: int | None = None) -> Verdict:
    issued = engine.now_s() if issued_at_s is None else issued_at_s
    return await engine.revocations().check(session_id, token_id, issued, timeout_s=SOON_S)
