"""The counters as Prometheus reads them, written from `metric_table`."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from seriatim.ports.event_log import Partition
from seriatim.runtime.config.roles import ALL_ROLES, ProcessRole
from seriatim.runtime.telemetry.counters import (
    ApiCounters,
    FanoutCounters,
    GatewayCounters,
    LatencyHistogram,
    ListenerCounters,
    MembershipCounters,
    WindowedRatio,
)
from seriatim.runtime.telemetry.durability_counters import DurabilityCounters
from seriatim.runtime.telemetry.grpc_counters import GrpcCounters
from seriatim.runtime.telemetry.logs import ThrottledLogger
from seriatim.runtime.telemetry.metric_table import (
    BY_ROLE,
    ENGINES,
    GRPC_CLIENT,
    GRPC_SERVER,
    LISTENER,
    MetricKind,
    MetricSpec,
)

if TYPE_CHECKING:
    from seriatim.runtime.telemetry.metric_table import Numbers

CONTENT_TYPE = CONTENT_TYPE_LATEST
SHORT_WINDOW_S = 300.0
GAP_WINDOW_S = 900.0  # docs/spec/data.md#metrics


class LiveState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of this process at the moment of a scrape."""

    ready: bool
    store_available: bool
    events_available: bool
    directory_available: bool
    breaker_open: bool
    connections: int
    outbound_frames_max: int
    active_chats: int
    lag_records: Mapping[Partition, int]
    lag_s: float | None  # None: unknown
    dead_letters: int | None
    under_replicated: int | None = None
    stalled: int = 0  # partitions of this process that do not move while their end does


class Metrics(Collector):
    """`tick` it every few seconds, so that ratios over a window know where the window began."""

    def __init__(self, instance: str, roles: Sequence[ProcessRole] = ALL_ROLES) -> None:
        self.durability: DurabilityCounters = DurabilityCounters()
        self.gateway: GatewayCounters = GatewayCounters()
        self.listener: ListenerCounters = ListenerCounters()
        self.fanout: FanoutCounters = FanoutCounters()
        self.memberships: MembershipCounters = MembershipCounters()
        self.api: ApiCounters = ApiCounters()
        self.grpc: GrpcCounters = GrpcCounters()
        self.engine_counters: list[Callable[[], Mapping[str, int | Numbers]]] = []  # by name, read at every scrape
        self._instance = instance
        self._roles = roles
        self.conflict_ratio: WindowedRatio = WindowedRatio(SHORT_WINDOW_S)
        self.hit_ratio: WindowedRatio = WindowedRatio(SHORT_WINDOW_S)
        self.skip_ratio: WindowedRatio = WindowedRatio(SHORT_WINDOW_S)
        self.gap_ratio: WindowedRatio = WindowedRatio(GAP_WINDOW_S)
        self._live: LiveState | None = None
        self._throttled = ThrottledLogger(logging.getLogger("seriatim"), every_s=60.0)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def trace_messages(self, wanted: bool) -> None:
        """What happens to each message is logged at debug level, by its ids: for as long as this is wanted."""
        self.durability.traces = self.fanout.traces = wanted

    def tick(self, now: float) -> None:
        durability, fanout = self.durability, self.fanout
        skipped = fanout.skips.total()
        self.conflict_ratio.note(now, durability.conflicts, durability.conflicts + durability.transactions)
        self.hit_ratio.note(now, durability.hits, durability.hits + durability.messages_persisted)
        self.skip_ratio.note(now, skipped, skipped + fanout.envelopes_delivered)
        lost = durability.slots_allocated - durability.messages_persisted
        self.gap_ratio.note(now, lost, durability.slots_allocated)
        durability.hot.tick(now)

    def key_reload_failed(self, error: Exception) -> None:
        self._throttled.log(
            logging.ERROR, "keys_not_reread", error=str(error), next_step="tokens still work with the keys of before"
        )

    def text(self, live: LiveState, now: float) -> bytes:
        self.tick(now)
        self._live = live
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        live = self._live
        if live is None:
            return
        for role, specs in BY_ROLE.items():
            if role in self._roles:
                yield from self._families(specs, live)
        if ProcessRole.GATEWAY in self._roles or ProcessRole.API in self._roles:
            yield from self._families(LISTENER, live)
        if self.grpc.dials:
            yield from self._families(GRPC_CLIENT, live)
        if self.grpc.listens:
            yield from self._families(GRPC_SERVER, live)
        counts = {name: found for read in self.engine_counters for name, found in read().items()}
        for spec in ENGINES:
            if spec.name in counts:
                yield self._family(spec, counts[spec.name])

    def _families(self, specs: Iterable[MetricSpec], live: LiveState) -> Iterator[Metric]:
        for spec in specs:
            assert spec.source is not None, "only engines count by themselves"
            value = spec.source(self, live)
            if value is not None:
                yield self._family(spec, value)

    def _family(self, spec: MetricSpec, value: "float | Numbers | LatencyHistogram") -> Metric:
        labels = ("instance", *spec.labels)
        if isinstance(value, LatencyHistogram):
            histogram = HistogramMetricFamily(spec.name, spec.help, labels=labels)
            histogram.add_metric((self._instance,), value.cumulative(), value.sum_s)
            return histogram
        kind = CounterMetricFamily if spec.kind is MetricKind.COUNTER else GaugeMetricFamily
        family = kind(spec.name, spec.help, labels=labels)
        if not isinstance(value, Mapping):
            family.add_metric((self._instance,), value)
            return family
        for key, number in value.items():
            family.add_metric((self._instance, key) if isinstance(key, str) else (self._instance, *key), number)
        return family
