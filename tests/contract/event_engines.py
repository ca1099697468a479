"""The engines under contract for event log, directory and push, and how a suite waits for them.

A suite is a list of plain functions from an engine to nothing, so that broken engines can be put before it as well.
To put another engine under contract, write its class here and add it to the list at the end.
"""

import asyncio
import inspect
import re
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Generic, Protocol, TypeVar

from seriatim.engines.embedded.event_log import EmbeddedDeadLetterWriter, EmbeddedEventLog, EmbeddedEventWriter
from seriatim.engines.embedded.event_reader import EmbeddedEventReader
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.engines.inprocess.push import InProcessChannels, InProcessPush, InProcessPushSubscriber
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.directory import Directory
from seriatim.ports.event_log import (
    CHATS,
    DEAD_LETTERS,
    MEMBERSHIPS,
    MESSAGES,
    DeadLetterWriter,
    EventReader,
    EventWriter,
    Record,
)
from seriatim.ports.push import Push, PushSubscriber
from seriatim.simulation.stores.event_log import BrokerObserver, MemoryBroker, MemoryDeadLetterWriter, MemoryEventWriter
from seriatim.simulation.stores.event_reader import MemoryEventReader
from tests.contract.kafka_engines import KafkaEventLogEngine
from tests.contract.redis_engines import RedisDirectoryEngine, RedisPushEngine

T = TypeVar("T")
SOON_S = 5.0
QUIET_LOOKS = 150  # an engine with more patience than that needs it for what must happen, not for what must not
PARTITIONS: Mapping[str, int] = {MESSAGES: 4, MEMBERSHIPS: 2, CHATS: 2, DEAD_LETTERS: 8}


class Engine(Protocol):
    """A server of its own. `looks` and `pause` are its patience: how often a test looks, and what passes in between."""

    looks: int

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def pause(self) -> None: ...


E = TypeVar("E", bound=Engine)


class Suite(Generic[E]):
    """The promises of one port; each function's docstring quotes what it tests."""

    def __init__(self, port: ModuleType) -> None:
        self.port = port
        self.promises: list[Callable[[E], Awaitable[None]]] = []

    def promise(self, test: Callable[[E], Awaitable[None]]) -> Callable[[E], Awaitable[None]]:
        self.promises.append(test)
        return test

    def named(self, name: str) -> Callable[[E], Awaitable[None]]:
        return next(test for test in self.promises if test.__name__ == name)

    def unquoted(self) -> Sequence[str]:
        """Sentences of the port's protocols that no test quotes."""
        quoted = " ".join([_flat(inspect.getdoc(test) or "") for test in self.promises])
        return [sentence for sentence in _sentences(self.port) if sentence not in quoted]


async def keep(promise: Callable[[E], Awaitable[None]], make: Callable[[], E]) -> None:
    """Puts one promise to a fresh engine."""
    engine = make()
    await engine.open()
    try:
        await promise(engine)
    finally:
        await engine.close()


async def until(engine: Engine, condition: Callable[[], bool], what: str) -> None:
    for _ in range(engine.looks):
        if condition():
            return
        await engine.pause()
    raise AssertionError(f"waited in vain: {what}")


async def soon(engine: Engine, waited: Coroutine[None, None, T], what: str = "an answer") -> T:
    task = asyncio.ensure_future(waited)
    try:
        await until(engine, task.done, what)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    return task.result()


async def quiet(engine: Engine) -> None:
    """Whatever was going to happen has happened."""
    for _ in range(min(engine.looks, QUIET_LOOKS)):
        await engine.pause()


class EventLogEngine(Engine, Protocol):
    """An empty event log with `PARTITIONS`, and a new process for each handle."""

    def writer(self) -> EventWriter: ...

    def dead_letters(self) -> DeadLetterWriter: ...

    def reader(self, group: str, consumer_id: str) -> EventReader: ...

    async def stored(self, topic: str) -> Sequence[Record]:
        """What the log itself holds at this moment, partition by partition."""
        ...

    async def expel(self, group: str, consumer_id: str) -> None:
        """That consumer's session times out."""
        ...


class DirectoryEngine(Engine, Protocol):
    """An empty directory, and a new process for each handle."""

    def directory(self) -> Directory: ...

    async def pass_time(self, seconds: float) -> None: ...

    async def wipe(self) -> None: ...

    async def listed(self, user_id: str) -> Sequence[str]:
        """The connection ids kept for a user, dead or alive."""
        ...


class PushEngine(Engine, Protocol):
    """Channels without subscribers, and a new process for each handle."""

    def push(self) -> Push: ...

    def subscriber(self) -> PushSubscriber: ...

    async def interrupt(self, gateway_id: str) -> None:
        """That gateway's subscription breaks."""
        ...

    async def restore(self, gateway_id: str) -> None: ...

    async def wipe(self) -> None:
        """Every subscription breaks."""
        ...


class MemoryEngine:
    """Memory engines take turns of the event loop, not time."""

    looks = 150

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    async def pause(self) -> None:
        await asyncio.sleep(0)


class MemoryEventLogEngine(MemoryEngine):
    def __init__(self, observer: BrokerObserver | None = None) -> None:
        self.broker = MemoryBroker(PARTITIONS, observer)

    def writer(self, wire: Wire | None = None) -> EventWriter:
        return MemoryEventWriter(self.broker, wire or Wire(), _noon)

    def dead_letters(self) -> DeadLetterWriter:
        return MemoryDeadLetterWriter(self.broker, Wire(), _noon)

    def reader(self, group: str, consumer_id: str, wire: Wire | None = None) -> EventReader:
        return MemoryEventReader(self.broker, wire or Wire(), group, consumer_id)

    async def stored(self, topic: str) -> Sequence[Record]:
        return self.broker.records(topic)

    async def expel(self, group: str, consumer_id: str) -> None:
        self.broker.expel(group, consumer_id)


class EmbeddedEventLogEngine:
    """A folder of its own. A pause lasts until the disk has nothing to do, then a turn of the event loop."""

    looks = 150

    async def open(self) -> None:
        self._root = tempfile.TemporaryDirectory(prefix="seriatim-")
        self.folder = Folder.open(Path(self._root.name) / "data")
        self.log = await EmbeddedEventLog.open(self.folder, PARTITIONS)

    async def close(self) -> None:
        await self.folder.close()
        self._root.cleanup()

    async def pause(self) -> None:
        await self.folder.writer.idle()
        await asyncio.sleep(0)

    def writer(self) -> EventWriter:
        return EmbeddedEventWriter(self.log, SystemClock())

    def dead_letters(self) -> DeadLetterWriter:
        return EmbeddedDeadLetterWriter(self.log, SystemClock())

    def reader(self, group: str, consumer_id: str) -> EventReader:
        return EmbeddedEventReader(self.log, group, consumer_id)

    async def stored(self, topic: str) -> Sequence[Record]:
        return self.log.records(topic)

    async def expel(self, group: str, consumer_id: str) -> None:
        self.log.group(group).expel(consumer_id)


class MemoryDirectoryEngine(MemoryEngine):
    def __init__(self) -> None:
        self.registry = InProcessRegistry()
        self._now_ms = _noon()

    def directory(self) -> Directory:
        return InProcessDirectory(self.registry, Wire(), self.now_ms)

    def now_ms(self) -> int:
        return self._now_ms

    async def pass_time(self, seconds: float) -> None:
        self._now_ms += int(seconds * 1000)

    async def wipe(self) -> None:
        self.registry.wipe()

    async def listed(self, user_id: str) -> Sequence[str]:
        return self.registry.listed(user_id)


class MemoryPushEngine(MemoryEngine):
    def __init__(self) -> None:
        self.channels = InProcessChannels()

    def push(self) -> Push:
        return InProcessPush(self.channels, Wire())

    def subscriber(self) -> PushSubscriber:
        return InProcessPushSubscriber(self.channels, Wire())

    async def interrupt(self, gateway_id: str) -> None:
        self.channels.interrupt(gateway_id)

    async def restore(self, gateway_id: str) -> None:
        self.channels.restore(gateway_id)

    async def wipe(self) -> None:
        self.channels.wipe()


def kafka() -> EventLogEngine:
    return KafkaEventLogEngine(PARTITIONS)


EVENT_LOGS: Sequence[Callable[[], EventLogEngine]] = (MemoryEventLogEngine, EmbeddedEventLogEngine, kafka)
DIRECTORIES: Sequence[Callable[[], DirectoryEngine]] = (MemoryDirectoryEngine, RedisDirectoryEngine)
PUSHES: Sequence[Callable[[], PushEngine]] = (MemoryPushEngine, RedisPushEngine)


def _noon() -> int:
    return 1_769_774_400_000


def _sentences(port: ModuleType) -> Sequence[str]:
    """What the port promises: in its protocols and their methods."""
    texts: list[str | None] = []
    for _, owner in inspect.getmembers(port, inspect.isclass):
        if owner.__module__ == port.__name__ and getattr(owner, "_is_protocol", False):
            texts.append(owner.__doc__)
            methods = inspect.getmembers(owner, inspect.isfunction)
            texts += [method.__doc__ for _, method in methods if method.__module__ == port.__name__]
    return [sentence for text in texts if text for sentence in re.split(r"(?<=\.) ", _flat(text))]


def _flat(text: str) -> str:
    return " ".join(text.split())
