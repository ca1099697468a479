"""One deployment for all tests of roles: its start and end cost more than most of them."""

from collections.abc import Iterator

import pytest

from tests.system.deployment import Deployment, deployed


@pytest.fixture(scope="package")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("deployment")) as running:
        yield running
