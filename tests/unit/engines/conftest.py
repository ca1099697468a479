"""A data folder for a test, closed when it ends. A Redis of its own for a test that is going to hurt it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from seriatim.engines.embedded.storage.folder import Folder
from tests.support.real_engines import real_engines
from tests.support.real_redis import Shard
from tests.unit.engines.slow_disk import SlowDisk
from tools.engines.redis import Redis


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


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    with real_engines():
        Redis(tmp_path).require()
    with Redis.started(tmp_path / "redis") as engine:
        yield engine


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    with real_engines():
        Shard(tmp_path).require()
    with Shard.started(tmp_path / "shard") as engine:
        yield engine
