"""`store = embedded:` and `events = embedded:`: a RocksDB store with the event log in it, in one data folder that one
process holds open.
"""

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
from seriatim.engines.embedded.message_log import EmbeddedDeliveryState, EmbeddedMessageLog
from seriatim.engines.embedded.request_keys import EmbeddedRequestKeys
from seriatim.engines.embedded.storage.folder import Folder, FolderError
from seriatim.engines.embedded.sweep import CautiousSweeper
from seriatim.ports.accounts import Accounts, Sessions
from seriatim.ports.atomic_store import AtomicStore
from seriatim.ports.catalog import Catalog, Roster, UserChats
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory
from seriatim.ports.event_log import DEAD_LETTERS, DeadLetterWriter, EventReader, EventWriter, Partition, Record
from seriatim.ports.message_log import DeliveryState, MessageLog
from seriatim.ports.request_keys import RequestKeys
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.server.health import FANOUT_GROUP
from seriatim.runtime.server.lifecycle import StartupError
from seriatim.runtime.server.plain_app import Handler
from seriatim.runtime.server.sweep_loop import SweepLoop
from seriatim.runtime.telemetry.counted_message_log import CountedMessageLog
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.tools.operator_requests import OperatorRequests
from seriatim.runtime.wiring.engine_set import BackgroundTask, Backlog, EventEngine, StoreEngine


async def open_folder(
    settings: Settings, metrics: Metrics, clock: Clock, *, create: bool
) -> tuple["EmbeddedStore", "EmbeddedEvents"]:
    """`create` makes the folder if it is missing. Raises `StartupError`."""
    try:
        folder = Folder.open(settings.data_folder, create=create)
    except FolderError as error:
        raise StartupError(str(error)) from error
    try:
        log = await EmbeddedEventLog.open(folder, PARTITIONS)
    except FolderError as error:
        await folder.close()
        raise StartupError(str(error)) from error
    except BaseException:
        await folder.close()
        raise
    return EmbeddedStore(folder, log, settings, metrics, clock), EmbeddedEvents(log, clock)


class EmbeddedStore(StoreEngine):
    """Owns the folder. Expired rows of the event log are swept here as well."""

    def __init__(
        self, folder: Folder, log: EmbeddedEventLog, settings: Settings, metrics: Metrics, clock: Clock
    ) -> None:
        self.folder = folder
        self.sweep_loop = SweepLoop(CautiousSweeper(folder, log, clock), clock, every_s=settings.sweep_seconds)
        self.tasks: Sequence[BackgroundTask] = (("sweep", lambda: self.sweep_loop.run()),)
        self._log = log
        self._metrics = metrics
        self._clock = clock

    def message_log(self) -> MessageLog:
        return CountedMessageLog(EmbeddedMessageLog(self.folder), self._metrics.durability)

    def atomic_store(self) -> AtomicStore:
        return EmbeddedAtomicStore(self.folder, self._log, self._clock)

    def sessions(self) -> Sessions:
        return EmbeddedSessions(self.folder)

    def user_chats(self) -> UserChats:
        return EmbeddedUserChats(self.folder)

    def roster(self) -> Roster:
        return EmbeddedRoster(self.folder)

    def accounts(self) -> Accounts:
        return EmbeddedAccounts(self.folder)

    def catalog(self) -> Catalog:
        return EmbeddedCatalog(self.folder)

    def delivery_state(self) -> DeliveryState:
        return EmbeddedDeliveryState(self.folder)

    def request_keys(self) -> RequestKeys:
        return EmbeddedRequestKeys(self.folder)

    def operator_routes(self, directory: Directory) -> Mapping[tuple[str, str], Handler]:
        return OperatorRequests(self.folder, self._log, directory, self._clock).routes()

    async def check_reachable(self) -> None:
        """It is in this process."""

    async def availability(self) -> Mapping[str, str | None]:
        """Of the store and of the event log in it."""
        reason = await self._unreadable()
        return {"store": reason, "events": reason}

    async def close(self) -> None:
        await self.folder.close()

    async def _unreadable(self) -> str | None:
        try:
            await self.folder.writer.read("ready", lambda snapshot: None, timeout_s=limits.STORE_TIMEOUT_S)
        except ServiceUnavailable as error:
            return error.log_reason
        return None


class EmbeddedEvents(EventEngine):
    def __init__(self, log: EmbeddedEventLog, clock: Clock) -> None:
        self.tasks: Sequence[BackgroundTask] = ()
        self._log = log
        self._clock = clock

    def writer(self, role: str, *topics: str) -> EventWriter:
        return EmbeddedEventWriter(self._log, self._clock)

    def dead_letter_writer(self, role: str) -> DeadLetterWriter:
        return EmbeddedDeadLetterWriter(self._log, self._clock)

    def reader(self, group: str, consumer_id: str) -> EventReader:
        return EmbeddedEventReader(self._log, group, consumer_id)

    async def check_reachable(self) -> None:
        """It is in this process."""

    async def availability(self) -> Mapping[str, str | None]:
        return {}  # the store answers for both

    async def backlog(self) -> Backlog:
        lag = self._log.lag(FANOUT_GROUP)
        committed = self._log.group(FANOUT_GROUP).committed
        ends = {partition: committed.get(partition, 0) + records for partition, records in lag.items()}
        return Backlog(lag_records=lag, ends=ends, lag_s=self._lag_s(lag), dead_letters=self._dead_letters())

    async def close(self) -> None:
        """The store closes the folder."""

    def _lag_s(self, lag: Mapping[Partition, int]) -> float:
        committed = self._log.group(FANOUT_GROUP).committed
        waiting = [
            record.timestamp_ms
            for partition, records in lag.items()
            if records > 0
            for record in self._first(partition, committed.get(partition, 0))
        ]
        return max(0.0, (self._clock.now_ms() - min(waiting)) / 1000) if waiting else 0.0

    def _dead_letters(self) -> int:
        """From the first one that retention left up to the end."""
        ends = self._log.end_offsets(DEAD_LETTERS)
        return sum(ends[partition] - record.offset for partition in ends for record in self._first(partition, 0))

    def _first(self, partition: Partition, offset: int) -> list[Record]:
        try:
            return self._log.fetch(partition, offset, 1)
        except ServiceUnavailable:  # the store is being opened again, and readiness says so
            return []
