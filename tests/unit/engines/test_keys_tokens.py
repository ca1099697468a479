"""Which tokens the keys vouch for, what a signed payload must look like, and when keys are reread."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.domain import limits
from seriatim.domain.errors import Unauthorized
from seriatim.domain.tokens import new_claims
from seriatim.engines.keys.key_folder import KeyFolder, KeyFolderError
from seriatim.engines.keys.tokens import Rs256Signer, Rs256Verifier
from tests.support.forged_tokens import foreign_key, signed, unpacked
from tests.support.manual_clock import ManualClock

CLOCK = ManualClock()
CLAIMS = new_claims(user_id="user_1", session_id="sess_1", device_id="d", token_id="token_1", now_s=CLOCK.now_s())
PLAIN: dict[str, object] = msgspec.to_builtins(CLAIMS)


class TokenHarness:
    """A folder that signs, and a verifier with a folder object of its own on the same files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.keys = KeyFolder.open(path, create=True, clock=self.clock)
        self.signer = Rs256Signer(self.keys)
        self.troubles: list[KeyFolderError] = []
        self.verifying = KeyFolder.open(path, create=False, clock=self.clock)
        self.verifier = Rs256Verifier(self.verifying, self.clock, self.troubles.append)

    def sign(self, payload: dict[str, object] | bytes, *, alg: str = "RS256") -> str:
        key = self.keys.signing
        return signed(payload, key.private, kid=key.kid, alg=alg)

    def accepts(self, token: str) -> bool:
        try:
            self.verifier.verify(token)
        except Unauthorized as error:
            if error.details == {"reason": "token_invalid"}:
                return False
            raise
        return True

    def rotate(self) -> str:
        """Elsewhere: the verifier is not notified. Returns a token of the new key."""
        self.clock.advance(1)
        self.keys.rotate()
        return self.signer.sign(CLAIMS)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> TokenHarness:
    """For tests that change no key."""
    return TokenHarness(tmp_path_factory.mktemp("shared") / "keys")


@pytest.fixture
def own(tmp_path: Path) -> TokenHarness:
    return TokenHarness(tmp_path / "keys")


def test_a_token_says_who_signed_it_and_how(harness: TokenHarness) -> None:
    token = harness.signer.sign(CLAIMS)
    assert unpacked(token.split(".")[0]) == {"alg": "RS256", "kid": harness.keys.signing.kid, "typ": "JWT"}
    assert harness.verifier.verify(token) == CLAIMS


def test_a_refusal_quotes_nothing_of_the_token(harness: TokenHarness) -> None:
    with pytest.raises(Unauthorized) as refused:
        harness.verifier.verify(harness.sign({**PLAIN, "sub": 1}))
    assert refused.value.message == "this is not a valid access token; sign in or refresh it"
    assert refused.value.__cause__ is None


def test_our_own_key_with_another_algorithm_is_refused(harness: TokenHarness) -> None:
    assert harness.accepts(harness.sign(PLAIN))
    assert not harness.accepts(harness.sign(PLAIN, alg="RS512"))
    assert not harness.accepts(harness.sign(PLAIN, alg="PS256"))


@pytest.mark.parametrize("claim", ["iss", "aud", "sub", "sid", "jti", "iat", "exp", "scope"])
def test_no_claim_may_be_missing(harness: TokenHarness, claim: str) -> None:
    assert not harness.accepts(harness.sign({name: value for name, value in PLAIN.items() if name != claim}))


@pytest.mark.parametrize("claim", ["sub", "exp", "extra"])
def test_no_claim_may_be_there_twice(harness: TokenHarness, claim: str) -> None:
    text = json.dumps({**PLAIN, "extra": 1})
    assert harness.accepts(harness.sign(text.encode()))
    twice = text[:-1] + f', "{claim}": {json.dumps({**PLAIN, "extra": 1}[claim])}}}'
    assert not harness.accepts(harness.sign(twice.encode()))


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("exp", True),
        ("exp", "1"),
        ("exp", 4_000_000_000.0),
        ("exp", None),
        ("iat", "now"),
        ("iat", []),
        ("sub", 1),
        ("sub", None),
        ("aud", ["messaging-api"]),
        ("sid", {"id": "sess_1"}),
        ("device_id", 7),
    ],
)
def test_claims_have_the_types_of_the_specification(harness: TokenHarness, claim: str, value: object) -> None:
    assert not harness.accepts(harness.sign({**PLAIN, claim: value}))


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{", b'"x"', b"\xff\xfe", b"[" * 2000, b'{"exp":NaN}'])
def test_a_signed_payload_that_is_no_claims_is_refused(harness: TokenHarness, payload: bytes) -> None:
    assert not harness.accepts(harness.sign(payload))


def test_a_deep_claim_under_our_signature_is_refused_and_crashes_nothing(harness: TokenHarness) -> None:
    deep = json.dumps(PLAIN)[:-1].encode() + b', "x": ' + b"[" * 1100 + b"]" * 1100 + b"}"
    assert not harness.accepts(harness.sign(deep))


def test_unknown_claims_are_ignored(harness: TokenHarness) -> None:
    assert harness.verifier.verify(harness.sign({**PLAIN, "roles": ["admin"]})) == CLAIMS


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_refused_and_crashes_nothing(harness: TokenHarness, text: str) -> None:
    assert not harness.accepts(text)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_token_with_any_character_changed_is_refused(harness: TokenHarness, data: st.DataObject) -> None:
    token = harness.signer.sign(CLAIMS)
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda each: each != token[place]))
    assert not harness.accepts(token[:place] + other + token[place + 1 :])


def test_a_key_of_the_last_rotation_verifies_on(own: TokenHarness) -> None:
    before = own.signer.sign(CLAIMS)
    after = own.rotate()
    assert own.accepts(after)
    assert own.accepts(before)


def test_an_unknown_kid_is_looked_for_once_and_then_not_for_a_while(own: TokenHarness) -> None:
    assert not own.accepts(signed(PLAIN, foreign_key(), kid="stranger"))
    fresh = own.rotate()
    assert not own.accepts(fresh)
    own.clock.advance(limits.KEYS_RELOAD_PAUSE_S - 1.5)
    assert not own.accepts(fresh)
    own.clock.advance(1)
    assert own.accepts(fresh)


def test_a_malformed_kid_is_not_looked_for(own: TokenHarness) -> None:
    for kid in ("../x", "", "a b", "x" * 65):
        assert not own.accepts(signed(PLAIN, foreign_key(), kid=kid))
    assert own.accepts(own.rotate())


def test_a_deleted_key_stops_verifying_with_the_next_rereading_even_tokens_seen_before(own: TokenHarness) -> None:
    token = own.signer.sign(CLAIMS)
    old = own.keys.signing.kid
    own.rotate()
    assert own.accepts(token)
    (own.path / f"{old}.pem").unlink()
    own.clock.advance(limits.KEYS_RELOAD_S - 2)
    assert own.accepts(token)
    own.clock.advance(2)
    assert not own.accepts(token)


def test_a_key_replaced_under_its_name_invalidates_tokens_seen_before(own: TokenHarness) -> None:
    token = own.signer.sign(CLAIMS)
    assert own.accepts(token)
    own.keys.rotate()
    file = own.path / f"{own.verifying.signing.kid}.pem"
    newer = own.path / f"{own.keys.signing.kid}.pem"
    newer.replace(file)
    own.verifying.reload()
    assert not own.accepts(token)


def test_a_rereading_that_fails_is_reported_and_changes_nothing(own: TokenHarness) -> None:
    token = own.signer.sign(CLAIMS)
    (own.path / "broken.pem").write_text("half a key")
    (own.path / "broken.pem").chmod(0o600)
    own.clock.advance(limits.KEYS_RELOAD_S)
    assert own.accepts(token)
    assert [str(own.path / "broken.pem") in str(each) for each in own.troubles] == [True]


def test_verified_tokens_are_remembered_up_to_a_limit(own: TokenHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOKENS_CACHED_MAX", 3)
    tokens = [own.signer.sign(msgspec.structs.replace(CLAIMS, jti=f"token_{number}")) for number in range(5)]
    for number, token in enumerate([*tokens, *tokens]):
        assert own.verifier.verify(token).jti == f"token_{number % 5}"
    assert own.verifier.remembered == 3
