"""A REST edge for each test, closed after it."""

from collections.abc import AsyncIterator

import pytest

from tests.support.rest import Rest, RestBench


@pytest.fixture
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RestBench]:
    bench = RestBench(tmp_path_factory.mktemp("keys") / "keys")
    yield bench
    await bench.close()


@pytest.fixture
def rest(bench: RestBench) -> Rest:
    return bench.client()
