"""The engines of a harness: in memory, unless a subclass overrides them."""

from collections.abc import Mapping
from typing import ClassVar

from seriatim.ports.atomic_store import AtomicStore
from seriatim.ports.catalog import Roster
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import CHATS, MEMBERSHIPS, MESSAGES, DeadLetterWriter, EventReader, Partition, Record
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.stores.atomic_store import MemoryAtomicStore
from seriatim.simulation.stores.catalog import MemoryCatalog, MemoryRoster
from seriatim.simulation.stores.event_log import BrokerObserver, MemoryBroker, MemoryDeadLetterWriter, MemoryEventWriter
from seriatim.simulation.stores.event_reader import MemoryEventReader
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore, StoreObserver
from tests.support.scripted_wire import ScriptedWire


class MemoryEngines(StoreObserver, BrokerObserver):
    loop: SimulatedLoop
    store: MemoryStore
    broker: MemoryBroker
    violations: list[str]
    partitions: ClassVar[Mapping[str, int]] = {MESSAGES: 1, MEMBERSHIPS: 1, CHATS: 1}
    atomic_store: ClassVar[bool] = False  # whether sends are committed atomically, unless a test says otherwise

    def open_engines(self) -> tuple[MemoryStore, MemoryBroker]:
        return MemoryStore(self), MemoryBroker(self.partitions, self)

    def close(self) -> None:
        """After the end of the loop."""

    def appended(self, record: Record) -> None: ...

    def committed(self, group: str, partition: Partition, next_offset: int) -> None: ...

    # --- handles ------------------------------------------------------------------------------------------------------

    def message_log(self, wire: ScriptedWire) -> MemoryMessageLog:
        return MemoryMessageLog(self.store, wire)

    def catalog(self, wire: ScriptedWire) -> MemoryCatalog:
        return MemoryCatalog(self.store, wire)

    def event_writer(self, wire: ScriptedWire, clock: Clock) -> MemoryEventWriter:
        return MemoryEventWriter(self.broker, wire, clock.now_ms)

    def atomic_store_handle(self, wire: ScriptedWire, clock: Clock) -> AtomicStore:
        return MemoryAtomicStore(self.store, self.broker, wire, clock.now_ms)

    def roster(self, wire: ScriptedWire) -> Roster:
        return MemoryRoster(self.store, wire)

    def event_reader(self, wire: ScriptedWire, group: str, consumer_id: str) -> EventReader:
        return MemoryEventReader(self.broker, wire, group, consumer_id)

    def dead_letter_writer(self, wire: ScriptedWire, clock: Clock) -> DeadLetterWriter:
        return MemoryDeadLetterWriter(self.broker, wire, clock.now_ms)
