"""A data folder for the tools: made once, copied for those who change it."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.unit.operations.populated_store import make_populated


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("populated") / "data"
    asyncio.run(make_populated(path))
    return path


@pytest.fixture
def populated(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "data"))
