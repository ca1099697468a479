"""A data folder of its own for whoever asks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seriatim.engines.embedded.folder import Folder


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    opened = Folder.open(tmp_path / "data")
    yield opened
    await opened.close()
