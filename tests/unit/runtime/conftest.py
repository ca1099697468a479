"""A data folder of its own for each test that asks, and what is logged meanwhile."""

import io
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from seriatim.engines.embedded.storage.folder import Folder
from seriatim.runtime.telemetry.logs import set_up


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    opened = Folder.open(tmp_path / "data")
    yield opened
    await opened.close()


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("seriatim")
    before = root.handlers[:], root.level, ours.level
    stream = io.StringIO()
    set_up(form="json", level="info", instance="here", stream=stream)
    yield stream
    root.handlers[:], root.level, ours.level = before
