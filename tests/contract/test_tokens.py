"""The contract of signer and authenticator. Each promise quotes its sentence of ports/tokens.py."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from seriatim.domain import limits
from seriatim.domain.account import Session
from seriatim.domain.errors import ServiceUnavailable, Unauthorized
from seriatim.domain.tokens import Claims, new_claims
from seriatim.ports import tokens as port
from tests.contract.edge_engines import TOKENS, TokensEngine
from tests.contract.event_engines import SOON_S, Suite, keep
from tests.support.forged_tokens import forgeries

SUITE: Suite[TokensEngine] = Suite(port)


@SUITE.promise
async def a_token_is_accepted_everywhere_until_it_expires(engine: TokensEngine) -> None:
    """A token that every authenticator with the public keys accepts until it expires or is revoked.

    What the token vouches for, by signature and times alone.
    """
    token = engine.signer().sign(claims(engine))
    given = claims(engine)
    assert engine.authenticator().verify(token) == given
    await engine.advance(limits.ACCESS_TOKEN_S - 1)
    assert engine.authenticator().verify(token) == given
    await engine.advance(1)
    assert refusal(engine, token) == "token_expired"


@SUITE.promise
async def a_verified_token_expires_in_the_same_process_too(engine: TokensEngine) -> None:
    """Raises `Unauthorized` with `details.reason` `token_invalid` or `token_expired`; no other algorithm or key than
    those of this deployment is accepted, whatever the token asks for.
    """
    token, authenticator = engine.signer().sign(claims(engine)), engine.authenticator()
    authenticator.verify(token)
    await engine.advance(limits.ACCESS_TOKEN_S)
    with pytest.raises(Unauthorized) as refused:
        authenticator.verify(token)
    assert refused.value.details == {"reason": "token_expired"}


@SUITE.promise
async def forged_tokens_are_refused(engine: TokensEngine) -> None:
    """Raises `Unauthorized` with `details.reason` `token_invalid` or `token_expired`; no other algorithm or key than
    those of this deployment is accepted, whatever the token asks for.
    """
    token = engine.signer().sign(claims(engine))
    authenticator = engine.authenticator()
    authenticator.verify(token)
    for what, forged in forgeries(token, kid=engine.kid(), public_pem=engine.public_pem()).items():
        with pytest.raises(Unauthorized) as refused:
            authenticator.verify(forged)
        assert refused.value.details == {"reason": "token_invalid"}, what
        with pytest.raises(Unauthorized):
            authenticator.verify(forged, expired_too=True)


@SUITE.promise
async def only_the_expiry_is_waived(engine: TokensEngine) -> None:
    """`expired_too` waives the expiry and nothing else."""
    early = claims(engine)
    token = engine.signer().sign(early)
    foreign = engine.signer().sign(msgspec.structs.replace(early, aud="another-api"))
    ahead = engine.now_s() + limits.ACCESS_TOKEN_S + 1 + limits.TOKEN_ISSUED_LEEWAY_S + 1
    future = engine.signer().sign(msgspec.structs.replace(early, iat=ahead))
    await engine.advance(limits.ACCESS_TOKEN_S + 1)
    assert engine.authenticator().verify(token, expired_too=True) == early
    for each in (foreign, future):
        assert refusal(engine, each, expired_too=True) == "token_invalid"


@SUITE.promise
async def a_token_of_a_living_session_passes(engine: TokensEngine) -> None:
    """Raises `Unauthorized` with `details.reason` `token_revoked` when token or session was revoked."""
    await engine.advance(2 * limits.TOKEN_ISSUED_LEEWAY_S)
    await check(engine)
    assert engine.sessions.asked == 0


@SUITE.promise
async def a_revoked_session_ends_its_tokens_and_a_revoked_token_itself(engine: TokensEngine) -> None:
    """Raises `Unauthorized` with `details.reason` `token_revoked` when token or session was revoked."""
    await engine.advance(2 * limits.TOKEN_ISSUED_LEEWAY_S)
    open_session(engine)
    await engine.revocations.revoke("sess_1", "token_1", timeout_s=SOON_S)
    assert await revoked(engine)
    assert await revoked(engine, jti="token_2")
    assert await revoked(engine, sid="sess_2")


@SUITE.promise
async def an_unsure_answer_is_decided_by_the_authority(engine: TokensEngine) -> None:
    """The fast answer is used only when it is sure; otherwise the authority decides."""
    assert await revoked(engine)
    open_session(engine, user_id="user_2")
    assert await revoked(engine)
    open_session(engine)
    await check(engine)
    open_session(engine, expires_in_s=0)
    assert await revoked(engine)


@SUITE.promise
async def a_fast_answer_that_does_not_come_is_decided_by_the_authority(engine: TokensEngine) -> None:
    """The fast answer is used only when it is sure; otherwise the authority decides."""
    await engine.advance(2 * limits.TOKEN_ISSUED_LEEWAY_S)
    engine.revocations.up = False
    assert await revoked(engine)
    open_session(engine)
    await check(engine)


@SUITE.promise
async def when_nobody_can_tell_nobody_passes(engine: TokensEngine) -> None:
    """When neither answers, it raises `ServiceUnavailable`: closed, not open."""
    open_session(engine)
    engine.sessions.up = False
    with pytest.raises(ServiceUnavailable):
        await check(engine)
    await engine.advance(2 * limits.TOKEN_ISSUED_LEEWAY_S)
    engine.revocations.up = False
    with pytest.raises(ServiceUnavailable):
        await check(engine)


@SUITE.promise
async def what_is_surely_revoked_needs_no_authority(engine: TokensEngine) -> None:
    """The fast answer is used only when it is sure; otherwise the authority decides."""
    await engine.revocations.revoke("sess_1", None, timeout_s=SOON_S)
    engine.sessions.up = False
    assert await revoked(engine)


@pytest.mark.parametrize("make", TOKENS)
@pytest.mark.parametrize("promise", SUITE.promises)
async def test_signer_and_authenticator_keep_their_promise(
    promise: Callable[[TokensEngine], Awaitable[None]], make: Callable[[], TokensEngine]
) -> None:
    await keep(promise, make)


def test_every_sentence_of_the_port_is_quoted() -> None:
    assert SUITE.unquoted() == []


def claims(engine: TokensEngine) -> Claims:
    return new_claims(
        user_id="user_1", session_id="sess_1", device_id="device_1", token_id="token_1", now_s=engine.now_s()
    )


def refusal(engine: TokensEngine, token: str, *, expired_too: bool = False) -> object:
    with pytest.raises(Unauthorized) as refused:
        engine.authenticator().verify(token, expired_too=expired_too)
    return refused.value.details["reason"]


def open_session(
    engine: TokensEngine, *, user_id: str = "user_1", expires_in_s: int = limits.SESSION_LIFETIME_S
) -> None:
    now_ms = engine.now_s() * 1000
    engine.sessions.known["sess_1"] = Session(
        session_id="sess_1",
        user_id=user_id,
        device_id="device_1",
        refresh_digest="digest",
        created_at_ms=now_ms,
        expires_at_ms=now_ms + expires_in_s * 1000,
        last_active_at_ms=now_ms,
    )


async def check(engine: TokensEngine, **changes: str) -> None:
    given = msgspec.structs.replace(claims(engine), **changes)
    await engine.authenticator().check_revoked(given, timeout_s=SOON_S)


async def revoked(engine: TokensEngine, **changes: str) -> bool:
    with pytest.raises(Unauthorized) as refused:
        await check(engine, **changes)
    return refused.value.details == {"reason": "token_revoked"}
