"""The state of the parts of a process at this moment: for readiness, and for a scrape of the metrics."""

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from seriatim.connection.gateway import Gateway
from seriatim.domain import limits
from seriatim.domain.circuit_breaker import BreakerState
from seriatim.durability.ingest import Ingest
from seriatim.fanout.consumer import FanoutConsumer
from seriatim.ports.clock import Clock
from seriatim.runtime.server.partition_stalls import PartitionStallMonitor
from seriatim.runtime.server.plain_app import Handler, PlainResponse
from seriatim.runtime.telemetry.logs import log_event
from seriatim.runtime.telemetry.metrics import CONTENT_TYPE, LiveState, Metrics
from seriatim.runtime.wiring.engine_set import NO_BACKLOG, EngineSet, IngestListener

_log = logging.getLogger("seriatim")
FANOUT_GROUP = "fanout-workers"


class ProcessHealth:
    """`draining`: this process is on its way out, and nothing new should come."""

    def __init__(
        self,
        engines: EngineSet,
        metrics: Metrics,
        clock: Clock,
        *,
        gateway: Gateway | None = None,
        ingest: Ingest | None = None,
        fanout: FanoutConsumer | None = None,
        listener: IngestListener | None = None,
    ) -> None:
        self._engines = engines
        self._metrics = metrics
        self._clock = clock
        self._gateway = gateway
        self._ingest = ingest
        self._fanout = fanout
        self._listener = listener
        self.stalls = None if fanout is None else PartitionStallMonitor(engines, fanout, clock)
        self.draining = False

    def trace_messages(self, wanted: bool) -> None:
        self._metrics.trace_messages(wanted)

    def routes(self) -> Mapping[tuple[str, str], Handler]:
        """For operators: not for the public."""
        return {
            ("GET", "/metrics"): self._get_metrics,
            **self.public_routes(),
            ("GET", "/health/ready"): self._get_ready_with_reasons,
        }

    def public_routes(self) -> Mapping[tuple[str, str], Handler]:
        return {("GET", "/health"): self._get_health, ("GET", "/health/ready"): self._get_ready}

    async def readiness(self) -> Mapping[str, bool]:
        """Part by part: whether it does its work. All of them together mean: send clients here."""
        return {part: reason is None for part, reason in (await self.reasons()).items()}

    async def reasons(self) -> Mapping[str, str | None]:
        """Part by part: why it does not do its work. For operators alone: it may name addresses and paths."""
        parts = dict(await self._engines.availability())
        if self._ingest is not None and parts.setdefault("events", None) is None:
            parts["events"] = _unless(self._ingest.breaker is not BreakerState.OPEN, "its breaker is open")
        if self._engines.remote is not None:
            parts["durability"] = _unless(bool(self._engines.remote.ready), "no ingest process takes requests")
        if self._gateway is not None:
            parts["gateway"] = _unless(self._gateway.ready, "it is not subscribed to pushes, or shuts down")
        if self.stalls is not None:
            stalled = ", ".join(f"{each.topic}/{each.number}" for each in self.stalls.partitions)
            parts["fanout"] = _unless(not stalled, f"partitions stand still: {stalled}")
        if self._listener is not None:
            parts["ingest"] = _unless(not self._listener.leaving, "it asks gateways to use another ingest")
        if self.draining:
            parts["staying"] = "this process is shutting down"
        return parts

    async def watch(self) -> None:
        """Until cancelled: asks now and then, and logs each part that stops or begins to do its work."""
        unready: dict[str, str] = {}
        while True:
            found = {part: reason for part, reason in (await self.reasons()).items() if reason is not None}
            for part, reason in found.items():
                if part not in unready:
                    log_event(_log, logging.WARNING, "part_unready", part=part, reason=reason, next_step=_NEXT_STEP)
            for part in unready:
                if part not in found:
                    log_event(_log, logging.INFO, "part_ready", part=part)
            unready = found
            await asyncio.sleep(limits.PROBE_EVERY_S)

    async def live(self) -> LiveState:
        ready = await self.readiness()
        backlog = NO_BACKLOG if self._fanout is None else await self._engines.backlog()
        connections = [] if self._gateway is None else list(self._gateway.connections.values())
        return LiveState(
            ready=all(ready.values()),
            store_available=ready.get("store", True),
            events_available=ready.get("events", True),
            directory_available=ready.get("directory", True),
            # Half open counts as open: it is not known yet whether it works, and an alert waits for a whole minute.
            breaker_open=self._gateway is not None and self._any_breaker_open(self._gateway),
            connections=len(connections),
            outbound_frames_max=max((each.waiting for each in connections), default=0),
            active_chats=0 if self._ingest is None else len(self._ingest.active_chats),
            lag_records=backlog.lag_records,
            lag_s=backlog.lag_s,
            dead_letters=backlog.dead_letters,
            under_replicated=backlog.under_replicated,
            stalled=0 if self.stalls is None else len(self.stalls.partitions),
        )

    def _any_breaker_open(self, gateway: Gateway) -> bool:
        """On the path of a send: towards an ingest or an engine, or one that an ingest reported."""
        if self._engines.remote is not None and self._engines.remote.breaker_open:
            return True
        here = () if self._ingest is None else (self._ingest.breaker, self._ingest.store_breaker)
        return gateway.breaker_open or any(state is not BreakerState.CLOSED for state in here)

    async def _get_metrics(self, body: bytes) -> PlainResponse:
        text = self._metrics.text(await self.live(), self._clock.monotonic())
        return PlainResponse(text, media_type=CONTENT_TYPE)

    async def _get_health(self, body: bytes) -> PlainResponse:
        return PlainResponse(msgspec.json.encode({"status": "ok"}))

    async def _get_ready(self, body: bytes) -> PlainResponse:
        parts = await self.readiness()
        fine = all(parts.values())
        return PlainResponse(msgspec.json.encode({"ready": fine, "parts": parts}), 200 if fine else 503)

    async def _get_ready_with_reasons(self, body: bytes) -> PlainResponse:
        found = await self.reasons()
        parts = {part: reason is None for part, reason in found.items()}
        reasons = {part: reason for part, reason in found.items() if reason is not None}
        if not reasons:
            return PlainResponse(msgspec.json.encode({"ready": True, "parts": parts}))
        return PlainResponse(msgspec.json.encode({"ready": False, "parts": parts, "reasons": reasons}), 503)


def _unless(fine: bool, reason: str) -> str | None:
    return None if fine else reason


_NEXT_STEP = "load balancers send no one here until it is ready again; mend what the reason names"
