"""Access tokens and refresh tokens: docs/spec/rest.md#signing-in."""

import hashlib
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.domain.errors import InvalidRefreshToken, Unauthorized
from seriatim.domain.tokens import (
    Claims,
    check_claims,
    digests_equal,
    new_claims,
    new_refresh_token,
    refresh_digest,
    split_refresh_token,
)

NOW = int(datetime(2026, 1, 30, 14, 30, tzinfo=UTC).timestamp())
CLAIMS = new_claims(user_id="user_1", session_id="sess_1", device_id="device", token_id="01HQX", now_s=NOW)


def test_a_new_token_says_what_the_specification_asks_for() -> None:
    assert msgspec.to_builtins(CLAIMS) == {
        "iss": "messaging-platform",
        "aud": "messaging-api",
        "sub": "user_1",
        "sid": "sess_1",
        "jti": "01HQX",
        "iat": NOW,
        "exp": NOW + 3600,
        "scope": "messaging",
        "device_id": "device",
    }
    check_claims(CLAIMS, NOW)


@pytest.mark.parametrize(
    "claims",
    [
        msgspec.structs.replace(CLAIMS, iss="somebody-else"),
        msgspec.structs.replace(CLAIMS, aud="another-api"),
        msgspec.structs.replace(CLAIMS, scope="admin"),
        msgspec.structs.replace(CLAIMS, sub=""),
        msgspec.structs.replace(CLAIMS, sid="sess#1"),
        msgspec.structs.replace(CLAIMS, jti="x" * 65),
    ],
)
def test_a_token_with_a_foreign_issuer_or_audience_or_without_ids_is_invalid(claims: Claims) -> None:
    assert _refusal(claims, NOW) == "token_invalid"


def test_clocks_may_differ_by_30_seconds_at_issue() -> None:
    check_claims(CLAIMS, NOW - 30)
    assert _refusal(CLAIMS, NOW - 30.5) == "token_invalid"


def test_a_token_expires_at_its_second_without_leeway() -> None:
    check_claims(CLAIMS, NOW + 3599.9)
    assert _refusal(CLAIMS, NOW + 3600) == "token_expired"


def test_an_expired_token_of_a_foreign_issuer_is_invalid_rather_than_expired() -> None:
    assert _refusal(msgspec.structs.replace(CLAIMS, iss="somebody-else"), NOW + 9999) == "token_invalid"


@pytest.mark.parametrize("field", ["iss", "aud", "sub", "sid", "jti", "iat", "exp", "scope"])
def test_no_checked_claim_may_be_left_out(field: str) -> None:
    given = msgspec.to_builtins(CLAIMS)
    del given[field]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, Claims)


def test_a_token_need_not_name_a_device() -> None:
    given = msgspec.to_builtins(CLAIMS)
    del given["device_id"]
    claims = msgspec.convert(given, Claims)
    check_claims(claims, NOW)
    assert claims.device_id is None


def test_a_refresh_token_is_its_session_and_256_bits_in_base64url() -> None:
    assert new_refresh_token("sess_1", 0) == "sess_1." + "A" * 43
    assert new_refresh_token("sess_1", 2**256 - 1) == "sess_1." + "_" * 42 + "8"
    with pytest.raises(OverflowError):
        new_refresh_token("sess_1", 2**256)


@given(st.integers(0, 2**256 - 1))
def test_every_refresh_token_splits_into_what_it_was_made_of(bits: int) -> None:
    token = new_refresh_token("sess_01HQX-1_a", bits)
    session_id, secret = split_refresh_token(token)
    assert (session_id, f"{session_id}.{secret}") == ("sess_01HQX-1_a", token)


@given(st.integers(0, 2**256 - 1), st.integers(0, 2**256 - 1))
def test_different_secrets_make_different_tokens(one: int, other: int) -> None:
    assert (new_refresh_token("s", one) == new_refresh_token("s", other)) == (one == other)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "sess_1",
        "sess_1.",
        "." + "A" * 43,
        "sess_1." + "A" * 42,
        "sess_1." + "A" * 44,
        "sess_1." + "A" * 43 + "\n",
        "sess_1." + "A" * 42 + "=",
        "sess_1." + "A" * 42 + "+",
        "sess#1." + "A" * 43,
        "sess_1.x." + "A" * 43,
    ],
)
def test_whatever_has_another_shape_is_no_refresh_token(token: str) -> None:
    with pytest.raises(InvalidRefreshToken):
        split_refresh_token(token)


def test_a_bad_refresh_token_is_a_401_with_its_own_code() -> None:
    assert (InvalidRefreshToken.code, InvalidRefreshToken.http_status) == ("INVALID_REFRESH_TOKEN", 401)


def test_the_digest_is_the_sha256_of_the_whole_token() -> None:
    token = new_refresh_token("sess_1", 7)
    assert refresh_digest(token) == hashlib.sha256(token.encode("ascii")).hexdigest()
    assert refresh_digest(token) != refresh_digest(new_refresh_token("sess_2", 7))


def test_digests_are_equal_only_to_themselves_and_foreign_text_is_no_error() -> None:
    digest = refresh_digest("sess_1.a")
    assert digests_equal(digest, refresh_digest("sess_1.a"))
    assert not digests_equal(digest, refresh_digest("sess_1.b"))
    assert not digests_equal(digest, digest[:-1])
    assert not digests_equal(digest, "é")


def _refusal(claims: Claims, now_s: float) -> object:
    with pytest.raises(Unauthorized) as caught:
        check_claims(claims, now_s)
    return caught.value.details["reason"]
