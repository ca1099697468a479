"""Every engine keeps every promise of `ports/accounts.py`, and every sentence there is put to the test."""

import pytest

from tests.contract.promises import ACCOUNTS, Promise, keep, name_of
from tests.contract.store_engines import ENGINES


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("promise", ACCOUNTS.promises, ids=name_of)
async def test_the_store_keeps_its_promise_about_accounts(engine: str, promise: Promise) -> None:
    await keep(promise, ENGINES[engine])


def test_every_sentence_of_the_port_is_quoted_by_a_promise() -> None:
    assert ACCOUNTS.untested_sentences() == []


def test_every_quote_still_stands_in_the_port() -> None:
    assert ACCOUNTS.stale_quotes() == []
