"""Every engine keeps every promise of `ports/request_keys.py`, and every sentence there is put to the test."""

import pytest

from tests.contract.promises import REQUEST_KEYS, Promise, keep, name_of
from tests.contract.store_engines import ENGINES


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("promise", REQUEST_KEYS.promises, ids=name_of)
async def test_the_store_keeps_its_promise_about_request_keys(engine: str, promise: Promise) -> None:
    await keep(promise, ENGINES[engine])


def test_every_sentence_of_the_port_is_quoted_by_a_promise() -> None:
    assert REQUEST_KEYS.untested_sentences() == []


def test_every_quote_still_stands_in_the_port() -> None:
    assert REQUEST_KEYS.stale_quotes() == []
