"""How the parts of a process are at this moment: for readiness, and for what a scrape of the metrics looks up."""

from collections.abc import Mapping

import msgspec

from seriatim.connection.gateway import Gateway
from seriatim.domain.breaker import BreakerState
from seriatim.durability.ingest import Ingest
from seriatim.fanout.service import FanoutService
from seriatim.ports.clock import Clock
from seriatim.runtime.metrics import CONTENT_TYPE, Live, Metrics
from seriatim.runtime.small_app import Handler, Reply
from seriatim.runtime.stalls import StallWatch
from seriatim.runtime.world import NO_BACKLOG, IngestListener, World

FANOUT_GROUP = "fanout-workers"


class Watch:
    """`draining`: this process is on its way out, and nothing new should come."""

    def __init__(
        self,
        world: World,
        metrics: Metrics,
        clock: Clock,
        *,
        gateway: Gateway | None = None,
        ingest: Ingest | None = None,
        fanout: FanoutService | None = None,
        listener: IngestListener | None = None,
    ) -> None:
        self._world = world
        self._metrics = metrics
        self._clock = clock
        self._gateway = gateway
        self._ingest = ingest
        self._fanout = fanout
        self._listener = listener
        self.stalls = None if fanout is None else StallWatch(world, fanout, clock)
        self.draining = False

    def routes(self) -> Mapping[tuple[str, str], Handler]:
        """For operators: not for the public."""
        return {("GET", "/metrics"): self._get_metrics, **self.public_routes()}

    def public_routes(self) -> Mapping[tuple[str, str], Handler]:
        return {("GET", "/health"): self._get_health, ("GET", "/health/ready"): self._get_ready}

    async def readiness(self) -> Mapping[str, bool]:
        """Part by part: whether it does its work. All of them together mean: send clients here."""
        parts = dict(await self._world.answers())
        if self._ingest is not None:
            parts["events"] = parts.get("events", True) and self._ingest.breaker is not BreakerState.OPEN
        if self._world.remote is not None:
            parts["durability"] = bool(self._world.remote.ready)
        if self._gateway is not None:
            parts["gateway"] = self._gateway.ready
        if self.stalls is not None:
            parts["fanout"] = not self.stalls.partitions
        if self._listener is not None:
            parts["ingest"] = not self._listener.leaving
        if self.draining:
            parts["staying"] = False
        return parts

    async def live(self) -> Live:
        ready = await self.readiness()
        backlog = NO_BACKLOG if self._fanout is None else await self._world.backlog()
        connections = [] if self._gateway is None else list(self._gateway.connections.values())
        return Live(
            ready=all(ready.values()),
            store_available=ready.get("store", True),
            events_available=ready.get("events", True),
            # Half open counts as open: nobody knows yet whether it works, and an alert waits for a whole minute.
            breaker_open=self._gateway is not None and self._any_breaker_open(self._gateway),
            connections=len(connections),
            outbound_frames_max=max((each.waiting for each in connections), default=0),
            active_chats=0 if self._ingest is None else len(self._ingest.active_chats),
            lag_records=backlog.lag_records,
            lag_s=backlog.lag_s,
            letters=backlog.letters,
            under_replicated=backlog.under_replicated,
            stalled=0 if self.stalls is None else len(self.stalls.partitions),
        )

    def _any_breaker_open(self, gateway: Gateway) -> bool:
        """Of those on the way of a send: ours towards an ingest or an engine, or one that an ingest told us of."""
        if self._world.remote is not None and self._world.remote.breaker_open:
            return True
        here = () if self._ingest is None else (self._ingest.breaker, self._ingest.store_breaker)
        return gateway.meets_open_breakers or any(state is not BreakerState.CLOSED for state in here)

    async def _get_metrics(self, body: bytes) -> Reply:
        text = self._metrics.text(await self.live(), self._clock.monotonic())
        return Reply(text, media_type=CONTENT_TYPE)

    async def _get_health(self, body: bytes) -> Reply:
        return Reply(msgspec.json.encode({"status": "ok"}))

    async def _get_ready(self, body: bytes) -> Reply:
        parts = await self.readiness()
        fine = all(parts.values())
        return Reply(msgspec.json.encode({"ready": fine, "parts": parts}), 200 if fine else 503)
