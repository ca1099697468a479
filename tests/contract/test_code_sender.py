"""The contract of the code sender. Each promise quotes its sentence of ports/code_sender.py."""

from collections.abc import Awaitable, Callable

import pytest

from seriatim.domain.errors import ServiceUnavailable
from seriatim.ports import code_sender as port
from tests.contract.edge_engines import CODE_SENDERS, CodeSenderEngine
from tests.contract.event_engines import Suite, keep

SUITE: Suite[CodeSenderEngine] = Suite(port)
PHONE, CODE = "+4915112345678", "123456"


@SUITE.promise
async def a_code_is_sent(engine: CodeSenderEngine) -> None:
    """Best effort, after the code was stored."""
    await engine.sender().send(PHONE, CODE)


@SUITE.promise
async def a_refusal_says_so_and_neither_code_nor_number(engine: CodeSenderEngine) -> None:
    """Raises `ServiceUnavailable` when the carrier refused it."""
    sender = engine.sender()
    if engine.break_carrier():
        with pytest.raises(ServiceUnavailable) as refused:
            await sender.send(PHONE, CODE)
        assert CODE not in refused.value.message
        assert PHONE not in refused.value.message


@pytest.mark.parametrize("make", CODE_SENDERS)
@pytest.mark.parametrize("promise", SUITE.promises)
async def test_the_code_sender_keeps_its_promise(
    promise: Callable[[CodeSenderEngine], Awaitable[None]], make: Callable[[], CodeSenderEngine]
) -> None:
    await keep(promise, make)


def test_every_sentence_of_the_port_is_quoted() -> None:
    assert SUITE.unquoted() == []
