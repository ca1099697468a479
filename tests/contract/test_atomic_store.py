"""Every store that takes whole sends keeps every promise of `ports/atomic_store.py`, and each sentence is tested."""

from collections.abc import Awaitable, Callable

import pytest

from tests.contract.atomic_store_engines import ATOMIC_STORES, AtomicStoreEngine
from tests.contract.atomic_store_suite import SUITE
from tests.contract.event_engines import keep

Promise = Callable[[AtomicStoreEngine], Awaitable[None]]


@pytest.mark.parametrize("engine", ATOMIC_STORES)
@pytest.mark.parametrize("promise", SUITE.promises, ids=lambda promise: promise.__name__)
async def test_a_store_keeps_its_promise(engine: Callable[[], AtomicStoreEngine], promise: Promise) -> None:
    await keep(promise, engine)


def test_every_sentence_of_the_port_is_quoted_by_a_promise() -> None:
    assert SUITE.unquoted() == []
