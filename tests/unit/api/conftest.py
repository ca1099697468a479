"""A REST edge for each test, closed after it."""

from collections.abc import AsyncIterator

import pytest

from tests.support.rest import RestClient, RestServer


@pytest.fixture
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RestServer]:
    server = RestServer(tmp_path_factory.mktemp("keys") / "keys")
    yield server
    await server.close()


@pytest.fixture
def rest(server: RestServer) -> RestClient:
    return server.client()
