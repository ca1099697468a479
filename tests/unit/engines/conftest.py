"""A data folder for a test, closed when it ends."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from seriatim.engines.embedded.folder import Folder
from tests.unit.engines.slow_disk import SlowDisk


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    opened = Folder.open(tmp_path / "data")
    yield opened
    await opened.close()


@pytest.fixture
def slow(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    disk = SlowDisk(folder.disk)
    monkeypatch.setattr(folder.disk, "sync", disk.sync)
    yield disk
    disk.may_end.set()
