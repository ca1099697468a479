"""Every engine keeps every promise of `ports/message_log.py`, and every sentence there is put to the test."""

import pytest

from tests.contract.promises import MESSAGE_LOG, Promise, keep, name_of
from tests.contract.store_engines import ENGINES


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("promise", MESSAGE_LOG.promises, ids=name_of)
async def test_the_message_log_keeps_its_promise(engine: str, promise: Promise) -> None:
    await keep(promise, ENGINES[engine])


def test_every_sentence_of_the_port_is_quoted_by_a_promise() -> None:
    assert MESSAGE_LOG.untested_sentences() == []


def test_every_quote_still_stands_in_the_port() -> None:
    assert MESSAGE_LOG.stale_quotes() == []
