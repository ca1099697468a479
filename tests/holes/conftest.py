"""Runs every story by each way to durability that it can take."""

import pytest

from tests.holes.ways import ONLY_THE_LONG_WAY
from tests.support.holes import LONG, SHORT


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "way" in metafunc.fixturenames:
        ways = [LONG] if metafunc.function.__name__ in ONLY_THE_LONG_WAY else [LONG, SHORT]
        metafunc.parametrize("way", ways)
