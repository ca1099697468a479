"""The world in one folder and one process: a RocksDB store with the event log in it, and the rest in memory."""

from collections.abc import Mapping, Sequence

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.embedded.accounts import EmbeddedAccounts, EmbeddedSessions
from seriatim.engines.embedded.atomic_store import EmbeddedAtomicStore
from seriatim.engines.embedded.catalog import EmbeddedCatalog, EmbeddedRoster, EmbeddedUserChats
from seriatim.engines.embedded.event_log import (
    PARTITIONS,
    EmbeddedDeadLetterWriter,
    EmbeddedEventLog,
    EmbeddedEventWriter,
)
from seriatim.engines.embedded.event_reader import EmbeddedEventReader
from seriatim.engines.embedded.message_log import EmbeddedDeliveryState
from seriatim.engines.embedded.request_keys import EmbeddedRequestKeys
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.sweep import CautiousSweeper
from seriatim.engines.inprocess.directory import MemoryDirectory, MemoryRegistry
from seriatim.engines.inprocess.push import MemoryChannels, MemoryPush, MemoryPushSubscriber
from seriatim.engines.inprocess.quotas import LocalQuotas
from seriatim.engines.inprocess.revocations import LocalRevocations
from seriatim.engines.inprocess.wire import ShortWire
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import DEAD_LETTERS, Partition, Record
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.server.health import FANOUT_GROUP
from seriatim.runtime.server.plain_app import Handler
from seriatim.runtime.server.sweep_loop import SweepLoop
from seriatim.runtime.telemetry.counters import CountedEmbeddedLog
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.tools.operator_requests import OperatorRequests
from seriatim.runtime.wiring.engine_set import (
    ApiPorts,
    Backlog,
    DurabilityPlane,
    EngineSet,
    FanoutPorts,
    GatewayPorts,
    IngestPorts,
    Part,
)


class EmbeddedEngineSet(EngineSet):
    def __init__(
        self, folder: Folder, events: EmbeddedEventLog, settings: Settings, metrics: Metrics, clock: Clock
    ) -> None:
        self.folder = folder
        self.remote = None
        self.sweeping = SweepLoop(
            CautiousSweeper(folder, events, clock), metrics, clock, every_s=settings.sweep_seconds
        )
        self.parts: Sequence[Part] = (("sweeping", lambda: self.sweeping.run()),)
        self._events = events
        self._metrics = metrics
        self._clock = clock
        wire = ShortWire()
        channels = MemoryChannels()
        self._directory = MemoryDirectory(MemoryRegistry(), wire, clock.now_ms)
        self._push = MemoryPush(channels, wire)
        self._subscriber = MemoryPushSubscriber(channels, wire)
        self._revocations = LocalRevocations(clock)

    @classmethod
    async def open(cls, folder: Folder, settings: Settings, metrics: Metrics, clock: Clock) -> "EmbeddedEngineSet":
        """Raises `FolderError`. The folder is closed by `close`, and by its owner if this fails."""
        return cls(folder, await EmbeddedEventLog.open(folder, PARTITIONS), settings, metrics, clock)

    def gateway_ports(self) -> GatewayPorts:
        return GatewayPorts(
            directory=self._directory, push=self._push, subscriber=self._subscriber, revocations=self._revocations
        )

    def ingest_ports(self) -> IngestPorts:
        return IngestPorts(
            log=CountedEmbeddedLog(self.folder, self._metrics.durability),
            events=EmbeddedEventWriter(self._events, self._clock),
            sessions=EmbeddedSessions(self.folder),
            user_chats=EmbeddedUserChats(self.folder),
            atomic_store=EmbeddedAtomicStore(self.folder, self._events, self._clock),
        )

    def fanout_ports(self, group: str, consumer_id: str) -> FanoutPorts:
        return FanoutPorts(
            reader=EmbeddedEventReader(self._events, group, consumer_id),
            dead_letters=EmbeddedDeadLetterWriter(self._events, self._clock),
            roster=EmbeddedRoster(self.folder),
            directory=self._directory,
            push=self._push,
        )

    def api_ports(self) -> ApiPorts:
        return ApiPorts(
            accounts=EmbeddedAccounts(self.folder),
            catalog=EmbeddedCatalog(self.folder),
            delivery=EmbeddedDeliveryState(self.folder),
            events=EmbeddedEventWriter(self._events, self._clock),
            request_keys=EmbeddedRequestKeys(self.folder),
            quotas=LocalQuotas(self._clock),
            revocations=self._revocations,
            directory=self._directory,
            push=self._push,
        )

    def listener(self, plane: DurabilityPlane, sessions: Sessions) -> None:
        return None

    def operator_routes(self) -> Mapping[tuple[str, str], Handler]:
        return OperatorRequests(self.folder, self._events, self._directory, self._clock).routes()

    async def reach(self) -> None:
        """It is here."""

    async def answers(self) -> Mapping[str, bool]:
        store = await self._store_answers()
        return {"store": store, "events": store}

    async def backlog(self) -> Backlog:
        lag = self._events.lag(FANOUT_GROUP)
        committed = self._events.group(FANOUT_GROUP).committed
        ends = {partition: committed.get(partition, 0) + records for partition, records in lag.items()}
        return Backlog(lag_records=lag, ends=ends, lag_s=self._lag_s(lag), dead_letters=self._dead_letters())

    async def close(self) -> None:
        await self.folder.close()

    # --- how it is ----------------------------------------------------------------------------------------------------

    async def _store_answers(self) -> bool:
        try:
            await self.folder.writer.read("ready", lambda snapshot: None, timeout_s=limits.STORE_TIMEOUT_S)
        except ServiceUnavailable:
            return False
        return True

    def _lag_s(self, lag: Mapping[Partition, int]) -> float:
        committed = self._events.group(FANOUT_GROUP).committed
        waiting = [
            record.timestamp_ms
            for partition, records in lag.items()
            if records > 0
            for record in self._first(partition, committed.get(partition, 0))
        ]
        return max(0.0, (self._clock.now_ms() - min(waiting)) / 1000) if waiting else 0.0

    def _dead_letters(self) -> int:
        """From the first one that retention left up to the end."""
        ends = self._events.end_offsets(DEAD_LETTERS)
        return sum(ends[partition] - record.offset for partition in ends for record in self._first(partition, 0))

    def _first(self, partition: Partition, offset: int) -> list[Record]:
        try:
            return self._events.fetch(partition, offset, 1)
        except ServiceUnavailable:  # the store is being mended, and says so elsewhere
            return []
