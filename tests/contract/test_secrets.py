"""The contract of the secrets. Each promise quotes its sentence of ports/secrets.py."""

from collections.abc import Awaitable, Callable

import pytest

from seriatim.ports import secrets as port
from tests.contract.edge_engines import SECRETS, SecretsEngine
from tests.contract.event_engines import Suite, keep

SUITE: Suite[SecretsEngine] = Suite(port)
CODE, PHONE, EXPIRES_MS = "123456", "5" * 64, 1_769_774_700_000


@SUITE.promise
async def a_codes_mac_is_the_same_in_every_process_and_different_for_everything_else(engine: SecretsEngine) -> None:
    """Binds a one-time code to its phone and its expiry; without the key codes cannot be tried against it."""
    mac = engine.secrets().code_mac(CODE, PHONE, EXPIRES_MS)
    assert engine.secrets().code_mac(CODE, PHONE, EXPIRES_MS) == mac
    others = [
        engine.secrets().code_mac("123457", PHONE, EXPIRES_MS),
        engine.secrets().code_mac(CODE, "6" * 64, EXPIRES_MS),
        engine.secrets().code_mac(CODE, PHONE, EXPIRES_MS + 1),
        engine.stranger().code_mac(CODE, PHONE, EXPIRES_MS),
    ]
    assert len({mac, *others}) == 5


@SUITE.promise
async def what_is_bound_cannot_be_shifted_from_one_part_into_the_next(engine: SecretsEngine) -> None:
    """Binds a one-time code to its phone and its expiry; without the key codes cannot be tried against it."""
    secrets = engine.secrets()
    assert secrets.code_mac("12", "34", 56) != secrets.code_mac("1", "234", 56)
    assert secrets.code_mac("12", "34", 56) != secrets.code_mac("12", "345", 6)


@SUITE.promise
async def what_was_sealed_is_opened_by_every_process_with_the_key(engine: SecretsEngine) -> None:
    """Only `unseal` with the same context opens it."""
    sealed = engine.secrets().seal(CODE, "phone_1")
    assert sealed is not None
    assert CODE.encode() not in sealed
    assert engine.secrets().unseal(sealed, "phone_1") == CODE


@SUITE.promise
async def the_same_text_is_never_sealed_alike(engine: SecretsEngine) -> None:
    """Only `unseal` with the same context opens it."""
    secrets = engine.secrets()
    assert len({secrets.seal(CODE, "phone_1") for _ in range(20)}) == 20


@SUITE.promise
async def a_seal_that_was_moved_broken_or_made_by_somebody_else_opens_nothing(engine: SecretsEngine) -> None:
    """None for anything that was not sealed here with this context."""
    secrets = engine.secrets()
    sealed = secrets.seal(CODE, "phone_1")
    assert sealed is not None
    assert secrets.unseal(sealed, "phone_2") is None
    assert engine.stranger().unseal(sealed, "phone_1") is None
    for place in range(len(sealed)):
        broken = bytearray(sealed)
        broken[place] ^= 1
        assert secrets.unseal(bytes(broken), "phone_1") is None
    for length in range(len(sealed)):
        assert secrets.unseal(sealed[:length], "phone_1") is None


@SUITE.promise
async def without_a_key_nothing_is_sealed_and_nothing_opened(engine: SecretsEngine) -> None:
    """None when no key for that is configured. None for anything that was not sealed here with this context."""
    sealed = engine.secrets().seal(CODE, "phone_1")
    assert sealed is not None
    keyless = engine.without_sealing_key()
    assert keyless.seal(CODE, "phone_1") is None
    assert keyless.unseal(sealed, "phone_1") is None


@SUITE.promise
async def a_cursors_tag_fits_one_payload_and_one_key(engine: SecretsEngine) -> None:
    """Authenticates a page cursor: it cannot be computed without the key."""
    tag = engine.secrets().cursor_tag(b"page 2")
    assert engine.secrets().cursor_tag(b"page 2") == tag
    assert engine.secrets().cursor_tag(b"page 3") != tag
    assert engine.stranger().cursor_tag(b"page 2") != tag
    assert len(tag) >= 16


@pytest.mark.parametrize("make", SECRETS)
@pytest.mark.parametrize("promise", SUITE.promises)
async def test_the_secrets_keep_their_promise(
    promise: Callable[[SecretsEngine], Awaitable[None]], make: Callable[[], SecretsEngine]
) -> None:
    await keep(promise, make)


def test_every_sentence_of_the_port_is_quoted() -> None:
    assert SUITE.unquoted() == []
