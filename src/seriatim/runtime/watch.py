"""How the parts are at this moment: for readiness, and for what a scrape of the metrics looks up."""

from collections.abc import Mapping

import msgspec

from seriatim.connection.gateway import Gateway
from seriatim.domain.breaker import BreakerState
from seriatim.domain.errors import ServiceUnavailable
from seriatim.domain.limits import STORE_TIMEOUT_S
from seriatim.durability.ingest import Ingest
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.folder import Folder
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import DEAD_LETTERS, Partition, Record
from seriatim.runtime.metrics import CONTENT_TYPE, Live, Metrics
from seriatim.runtime.small_app import Handler, Reply

FANOUT_GROUP = "fanout-workers"


class Watch:
    def __init__(
        self,
        folder: Folder,
        events: EmbeddedEventLog,
        ingest: Ingest,
        gateway: Gateway,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._events = events
        self._ingest = ingest
        self._gateway = gateway
        self._metrics = metrics
        self._clock = clock

    def routes(self) -> Mapping[tuple[str, str], Handler]:
        return {("GET", "/metrics"): self._get_metrics, ("GET", "/health/ready"): self._get_ready}

    async def readiness(self) -> Mapping[str, bool]:
        """Part by part: whether it does its work. All of them together mean: send clients here."""
        store = await self._store_answers()
        return {
            "store": store,
            "events": store and self._ingest.breaker is not BreakerState.OPEN,
            "gateway": self._gateway.ready,
        }

    async def live(self) -> Live:
        ready = await self.readiness()
        lag = self._events.lag(FANOUT_GROUP)
        return Live(
            ready=all(ready.values()),
            store_available=ready["store"],
            events_available=ready["events"],
            # Half open counts as open: nobody knows yet whether it works, and an alert waits for a whole minute.
            breaker_open=self._gateway.breaker is not BreakerState.CLOSED,
            connections=len(self._gateway.connections),
            outbound_frames_max=max((each.waiting for each in self._gateway.connections.values()), default=0),
            active_chats=len(self._ingest.active_chats),
            lag_records=lag,
            lag_s=self._lag_s(lag),
            letters=self._letters(),
        )

    async def _store_answers(self) -> bool:
        try:
            await self._folder.writer.look("ready", lambda look: None, timeout_s=STORE_TIMEOUT_S)
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

    def _letters(self) -> int:
        """From the first one that retention left up to the end."""
        ends = self._events.end_offsets(DEAD_LETTERS)
        return sum(ends[partition] - record.offset for partition in ends for record in self._first(partition, 0))

    def _first(self, partition: Partition, offset: int) -> list[Record]:
        try:
            return self._events.fetch(partition, offset, 1)
        except ServiceUnavailable:  # the store is being mended, and says so elsewhere
            return []

    async def _get_metrics(self, body: bytes) -> Reply:
        text = self._metrics.text(await self.live(), self._clock.monotonic())
        return Reply(text, media_type=CONTENT_TYPE)

    async def _get_ready(self, body: bytes) -> Reply:
        parts = await self.readiness()
        fine = all(parts.values())
        return Reply(msgspec.json.encode({"ready": fine, "parts": parts}), 200 if fine else 503)
