"""Harnesses on a real data folder: RocksDB in a temporary folder, one process, atomic commits, virtual time.

Only the thread of the writer is replaced: a sync takes its time on the simulated loop.
"""

import asyncio
import inspect
import math
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from seriatim.domain.errors import OutcomeUnknown, SeriatimError
from seriatim.domain.events import BadEvent, MessagePersisted, decode
from seriatim.engines.embedded.atomic_store import EmbeddedAtomicStore
from seriatim.engines.embedded.catalog import EmbeddedCatalog, EmbeddedRoster
from seriatim.engines.embedded.event_log import EmbeddedDeadLetterWriter, EmbeddedEventLog, EmbeddedEventWriter
from seriatim.engines.embedded.event_reader import EmbeddedEventReader
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.rows import EventRow, first_text, last_number
from seriatim.engines.embedded.storage.snapshot import WriteTransaction
from seriatim.ports.atomic_store import AtomicStore, AtomicTransaction
from seriatim.ports.catalog import Roster
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import MESSAGES, DeadLetterWriter, EventReader, Headers, Partition, Record
from seriatim.simulation.stores.catalog import MemoryCatalog
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryEventWriter
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore
from tests.support.cluster_harness import ClusterHarness
from tests.support.durability_harness import DurabilityHarness
from tests.support.folder_store import FolderStore, VirtualSyncs
from tests.support.memory_engines import MemoryEngines
from tests.support.scripted_wire import ScriptedWire

T_S = 5.0


class EmbeddedEngines(MemoryEngines):
    """In place of the engines in memory. Casts: these answer whatever the stories ask of those."""

    atomic_store: ClassVar[bool] = True

    def open_engines(self) -> tuple[MemoryStore, MemoryBroker]:
        self._root = tempfile.TemporaryDirectory(prefix="seriatim-")
        self.folder = Folder.open(Path(self._root.name) / "data")
        self.syncs = VirtualSyncs(self.loop)
        self.syncs.serve(self.folder.writer)
        self._ingests = 0
        store = FolderStore(self.folder, self._overwritten)
        self.log = self.loop.run_until_complete(EmbeddedEventLog.open(self.folder, self.partitions))
        return cast(MemoryStore, store), cast(MemoryBroker, FolderEventLog(self.log))

    def close(self) -> None:
        self.folder.disk.close()
        self.folder._lock.release()
        self._root.cleanup()

    def _overwritten(self, key: bytes) -> None:
        self.violations.append(f"slot {last_number(key)} of {first_text(key)} was written twice")

    def is_published(self, message_id: str) -> bool:
        decoded = [_event(record) for record in self.log.records(MESSAGES)]
        return message_id in [each.message.message_id for each in decoded if isinstance(each, MessagePersisted)]

    def message_log(self, wire: ScriptedWire) -> MemoryMessageLog:
        self._ingests += 1
        assert self._ingests == 1, "a data folder belongs to one process"
        return cast(MemoryMessageLog, WiredEngine(EmbeddedMessageLog(self.folder), wire))

    def catalog(self, wire: ScriptedWire) -> MemoryCatalog:
        return cast(MemoryCatalog, WiredEngine(EmbeddedCatalog(self.folder), wire))

    def event_writer(self, wire: ScriptedWire, clock: Clock) -> MemoryEventWriter:
        return cast(MemoryEventWriter, WiredEngine(EmbeddedEventWriter(self.log, clock), wire))

    def atomic_store_handle(self, wire: ScriptedWire, clock: Clock) -> AtomicStore:
        return WiredAtomicStore(EmbeddedAtomicStore(self.folder, self.log, clock), wire, self.syncs)

    def roster(self, wire: ScriptedWire) -> Roster:
        return cast(Roster, WiredEngine(EmbeddedRoster(self.folder), wire))

    def event_reader(self, wire: ScriptedWire, group: str, consumer_id: str) -> EventReader:
        return EmbeddedEventReader(self.log, group, consumer_id)

    def dead_letter_writer(self, wire: ScriptedWire, clock: Clock) -> DeadLetterWriter:
        return cast(DeadLetterWriter, WiredEngine(EmbeddedDeadLetterWriter(self.log, clock), wire))


class EmbeddedDurabilityHarness(EmbeddedEngines, DurabilityHarness):
    pass


class EmbeddedCluster(EmbeddedEngines, ClusterHarness):
    pass


class FolderEventLog:
    """The part of `MemoryBroker` that stories use."""

    def __init__(self, log: EmbeddedEventLog) -> None:
        self._log = log

    def records(self, topic: str) -> Sequence[Record]:
        return self._log.records(topic)

    def committed(self, group: str, partition: Partition) -> int | None:
        return self._log.group(group).committed.get(partition)

    def expel(self, group: str, consumer_id: str) -> None:
        self._log.group(group).expel(consumer_id)

    def append(self, partition: Partition, events: Sequence[tuple[bytes | None, bytes, Headers]], now_ms: int) -> None:
        """Behind all that was asked for before, and before all that follows."""
        fresh = [(EventRow(key, value, headers, now_ms), None) for key, value, headers in events]
        deadline = asyncio.get_running_loop().time() + T_S

        def begin(opened: WriteTransaction | SeriatimError) -> None:
            assert not isinstance(opened, SeriatimError)
            self._log.put(opened, partition, fresh)
            self._log.writer.submit(
                "append",
                opened,
                lambda error: None,
                deadline=deadline,
                applied=lambda: self._log.appended({partition: fresh}),
            )

        self._log.writer.when_ready("append", begin, deadline=deadline)


class WiredEngine:
    """An engine behind a scripted wire: each of its calls meets its fate before and after it is made."""

    def __init__(self, engine: object, wire: ScriptedWire) -> None:
        self._engine = engine
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._engine, name)
        return partial(self._call, name, method) if inspect.iscoroutinefunction(method) else method

    async def _call(self, name: str, method: Callable[..., Any], *args: Any, timeout_s: float, **options: Any) -> Any:
        outcome = self._wire.next_outcome(name)
        if outcome.refusal is not None:
            await asyncio.sleep(0)
            raise outcome.refusal(f"{name}: {outcome.refusal.__name__}")
        ends = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(ends):
                await _leg(outcome.request_s)
                if outcome.before is not None:
                    outcome.before()
                result = await method(*args, timeout_s=timeout_s, **options)
                await _leg(outcome.response_s)
                return result
        except TimeoutError:
            raise OutcomeUnknown(f"{name}: no answer within {timeout_s:g} s") from None


class WiredAtomicStore(AtomicStore):
    """A lost request is a sync that never ends: the engine itself has to answer by the deadline."""

    def __init__(self, store: AtomicStore, wire: ScriptedWire, syncs: VirtualSyncs) -> None:
        self._store = store
        self._wire = wire
        self._syncs = syncs

    def when_ready(self, begin: Callable[[AtomicTransaction | SeriatimError], None], *, deadline: float) -> None:
        outcome, loop = self._wire.next_outcome("transaction"), asyncio.get_running_loop()
        if outcome.refusal is not None:
            loop.call_soon(begin, outcome.refusal("transaction: refused"))
            return

        def begin_on(opened: AtomicTransaction | SeriatimError) -> None:
            if outcome.before is not None and not isinstance(opened, SeriatimError):
                outcome.before()
            begin(opened)

        if outcome.request_s == math.inf:
            self._syncs.held = True
            self._store.when_ready(begin_on, deadline=deadline)
        elif outcome.request_s:
            loop.call_later(outcome.request_s, partial(self._store.when_ready, begin_on, deadline=deadline))
        else:
            self._store.when_ready(begin_on, deadline=deadline)


def _event(record: Record) -> object:
    try:
        return decode(record.key, record.value)
    except BadEvent:
        return None


async def _leg(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(1e9 if seconds == math.inf else seconds)
