"""All three engines at once, for development and for tests: real Redis, Kafka and DynamoDB Local on 127.0.0.1.

with Engines.started() as engines:        # or `async with`
    engines.redis_url, engines.kafka_bootstrap, engines.dynamodb_url
    engines.kafka.kill()                  # from a coroutine: await asyncio.to_thread(engines.kafka.start)
    engines.kafka.start()
"""

import asyncio
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tools.engines.dynamodb import DynamoDB
from tools.engines.engine import Engine
from tools.engines.errors import each_of
from tools.engines.kafka import Kafka
from tools.engines.redis import Redis

FOLDER_PREFIX = "seriatim-engines-"


class Engines:
    """Three engines with a data folder of their own in `root` (by default, where temporary files go)."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / "not-made-yet"
        self._place(self._folder)

    @classmethod
    def started(cls, root: Path | None = None) -> Self:
        """Starts them on entering the block; kills them and removes their data on leaving it.

        Raises EngineMissing for all that is not on this machine, before anything is started.
        """
        return cls(root or Path(tempfile.gettempdir()))

    @property
    def redis_url(self) -> str:
        return self.redis.url

    @property
    def kafka_bootstrap(self) -> str:
        return self.kafka.bootstrap

    @property
    def dynamodb_url(self) -> str:
        return self.dynamodb.url

    def __enter__(self) -> Self:
        each_of(engine.require for engine in self._all)
        sweep(self._root)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-", dir=self._root))
        self._place(self._folder)
        try:
            with ThreadPoolExecutor(max_workers=len(self._all)) as starters:
                for each in [starters.submit(engine.start) for engine in self._all]:
                    each.result()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await starting  # a thread cannot be called off; what it started is ended
            await asyncio.to_thread(self._end)
            raise

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._end)

    def _place(self, folder: Path) -> None:
        self.redis = Redis(folder / "redis")
        self.kafka = Kafka(folder / "kafka")
        self.dynamodb = DynamoDB(folder / "dynamodb")
        self._all: tuple[Engine, ...] = (self.redis, self.kafka, self.dynamodb)

    def _end(self) -> None:
        for engine in self._all:
            engine.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def sweep(root: Path) -> None:
    """Removes the data of runs that were killed and could not do it themselves."""
    for folder in root.glob(f"{FOLDER_PREFIX}*-*"):
        pid = folder.name.removeprefix(FOLDER_PREFIX).split("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)
