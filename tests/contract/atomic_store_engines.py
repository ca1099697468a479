"""The engines under contract for atomic commits. Each can be held, killed and broken."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from seriatim.domain.errors import OutcomeUnknown, SeriatimError, ServiceUnavailable
from seriatim.engines.embedded.atomic_store import EmbeddedAtomicStore
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.storage.disk import Changes, Disk, DiskError
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.atomic_store import AtomicStore, AtomicTransaction
from seriatim.ports.event_log import MESSAGES, Record
from seriatim.simulation.stores.atomic_store import MemoryAtomicStore
from seriatim.simulation.stores.event_log import MemoryBroker
from tests.contract import store_engines
from tests.contract.event_engines import Engine
from tests.contract.store_engines import StoreEngine

T = TypeVar("T")
SOON_S = 5.0
PARTITIONS = {MESSAGES: 2}


def committing(
    work: Callable[[AtomicTransaction], None], done: Callable[[SeriatimError | None], None]
) -> Callable[[AtomicTransaction | SeriatimError], None]:
    """A `begin` that does this work and commits. `done` also gets the error of a transaction that did not begin."""

    def begin(opened: AtomicTransaction | SeriatimError) -> None:
        if isinstance(opened, SeriatimError):
            done(opened)
        else:
            work(opened)
            opened.commit(done)

    return begin


class AtomicStoreEngine(Engine, Protocol):
    """One store and its event log. They belong to one process, so there is one handle."""

    store: StoreEngine

    def atomic_store(self) -> AtomicStore: ...

    def events(self) -> Sequence[Record]:
        """What readers of the event log can read at this moment, partition by partition."""
        ...

    async def hold(self) -> None:
        """From now on the store is busy: nothing is decided, until `release`."""
        ...

    def release(self) -> None: ...

    def hold_answers(self) -> None:
        """From now on transactions are committed, and `done` is not called, until `release`."""
        ...

    def fail(self) -> None:
        """From now on nothing can be written."""
        ...

    async def shut(self) -> None:
        """The store is closed, though its handle lives."""
        ...

    async def reopen(self) -> None:
        """The process dies without a goodbye, and another one opens the store."""
        ...


class MemoryAtomicStoreEngine:
    looks = 400

    def __init__(self) -> None:
        self.memory = store_engines.MemoryEngine()
        self.store: StoreEngine = self.memory
        self.broker = MemoryBroker(PARTITIONS)
        self.wire = BusyWire()
        self._atomic_store = self.make()

    def make(self) -> MemoryAtomicStore:
        return MemoryAtomicStore(self.memory.store, self.broker, self.wire, SystemClock().now_ms)

    async def open(self) -> None:
        return

    async def close(self) -> None:
        self.release()
        await self._atomic_store.close()

    async def pause(self) -> None:
        await asyncio.sleep(0.005)

    def atomic_store(self) -> AtomicStore:
        return self._atomic_store

    def events(self) -> Sequence[Record]:
        return self.broker.records(MESSAGES)

    async def hold(self) -> None:
        self.wire.requests.clear()

    def release(self) -> None:
        self.wire.requests.set()
        self.wire.responses.set()

    def hold_answers(self) -> None:
        self.wire.responses.clear()

    def fail(self) -> None:
        self.wire.failing = True

    async def shut(self) -> None:
        await self._atomic_store.close()

    async def reopen(self) -> None:
        self._atomic_store = self.make()


class BusyWire(Wire):
    """Either leg can be held. What is held arrives once it is released, even if its caller gave up."""

    def __init__(self) -> None:
        self.requests, self.responses = asyncio.Event(), asyncio.Event()
        self.requests.set()
        self.responses.set()
        self.failing = False

    async def call(
        self, operation: str, apply: Callable[[], T], *, timeout_s: float, finish: Callable[[], None] | None = None
    ) -> T:
        async def way() -> T:
            await self.requests.wait()
            if self.failing:
                raise ServiceUnavailable("the store cannot be written")
            found = await super(BusyWire, self).call(operation, apply, timeout_s=SOON_S, finish=finish)
            await self.responses.wait()
            return found

        if timeout_s <= 0:
            raise OutcomeUnknown(f"{operation}: no time left")
        under_way = asyncio.ensure_future(way())
        try:
            return await asyncio.wait_for(asyncio.shield(under_way), timeout_s)
        except TimeoutError:
            under_way.add_done_callback(lambda late: late.exception())
            raise OutcomeUnknown(f"{operation}: no answer in time") from None


class EmbeddedAtomicStoreEngine:
    """A folder of its own. When its process dies, the files are as they were at that moment."""

    looks = 400

    def __init__(self) -> None:
        self.embedded = store_engines.EmbeddedEngine()
        self.store: StoreEngine = self.embedded
        self._may_sync = threading.Event()
        self._may_sync.set()
        self._syncing = threading.Event()
        self._others: list[asyncio.Future[None]] = []

    async def open(self) -> None:
        await self.embedded.open()
        await self._begin()

    async def _begin(self) -> None:
        self.log = await EmbeddedEventLog.open(self.embedded.folder, PARTITIONS)
        self._atomic_store = self.make()
        disk = self.embedded.folder.disk

        def sync() -> None:
            self._syncing.set()
            assert self._may_sync.wait(SOON_S), "the test did not let the sync end"
            Disk.sync(disk)

        disk.sync = sync  # type: ignore[method-assign]

    def make(self) -> AtomicStore:
        return EmbeddedAtomicStore(self.embedded.folder, self.log, SystemClock())

    async def close(self) -> None:
        self.release()
        await asyncio.gather(*self._others)
        await self.embedded.close()

    async def pause(self) -> None:
        await asyncio.sleep(0.005)

    def atomic_store(self) -> AtomicStore:
        return self._atomic_store

    def events(self) -> Sequence[Record]:
        return self.log.records(MESSAGES)

    async def hold(self) -> None:
        self._may_sync.clear()
        self._syncing.clear()
        writer = self.embedded.folder.writer
        other = writer.commit("other", lambda transaction: transaction.put(b"Cbusy", b""), timeout_s=SOON_S)
        self._others.append(asyncio.ensure_future(other))
        assert await asyncio.to_thread(self._syncing.wait, SOON_S), "its sync does not begin"

    def release(self) -> None:
        self._may_sync.set()

    def hold_answers(self) -> None:
        self._may_sync.clear()

    def fail(self) -> None:
        def write(changes: Changes) -> None:
            raise DiskError("IO error: no space left on device")

        def reopen() -> None:
            raise DiskError("IO error: still no space")

        disk = self.embedded.folder.disk
        disk.write = write  # type: ignore[method-assign]
        disk.reopen = reopen  # type: ignore[method-assign]

    async def shut(self) -> None:
        await self.embedded.folder.close()

    async def reopen(self) -> None:
        await self.embedded.reopen()
        await self._begin()


ATOMIC_STORES: Sequence[Callable[[], AtomicStoreEngine]] = (MemoryAtomicStoreEngine, EmbeddedAtomicStoreEngine)
