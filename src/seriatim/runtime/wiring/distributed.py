"""The world of several processes: DynamoDB is the truth, Kafka the event log, Redis the routing; gRPC between planes.

Only what the roles of this process need is opened: a gateway has neither the address of the store nor of the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError, ServiceUnavailable
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import CHATS, DEAD_LETTERS, MEMBERSHIPS, MESSAGES
from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.config.settings import DNS, Settings, address
from seriatim.runtime.server.lifecycle import StartupError
from seriatim.runtime.server.plain_app import Handler
from seriatim.runtime.telemetry.logs import log_event
from seriatim.runtime.telemetry.metrics import EngineCounter, Metrics
from seriatim.runtime.wiring.engine_set import (
    NO_BACKLOG,
    ApiPorts,
    Backlog,
    DurabilityPlane,
    EngineSet,
    FanoutPorts,
    GatewayPorts,
    IngestListener,
    IngestPorts,
    Part,
)

try:
    from seriatim.engines.dynamodb.accounts import DynamoAccounts, DynamoSessions
    from seriatim.engines.dynamodb.catalog import DynamoCatalog, DynamoRoster, DynamoUserChats
    from seriatim.engines.dynamodb.delivery_state import DynamoDeliveryState
    from seriatim.engines.dynamodb.message_log import DynamoMessageLog
    from seriatim.engines.dynamodb.request_keys import DynamoRequestKeys
    from seriatim.engines.dynamodb.store import DynamoStore, ReadOnlyStore
    from seriatim.engines.dynamodb.transport.client import DynamoClient
    from seriatim.engines.grpc.dial import GrpcDialer, MutualTls
    from seriatim.engines.grpc.discovery import AddressSource, DnsAddresses, StaticAddresses
    from seriatim.engines.grpc.durability import GrpcDurability
    from seriatim.engines.grpc.server import DurabilityServer
    from seriatim.engines.kafka.cluster import Cluster, check_partitions
    from seriatim.engines.kafka.errors import NotAuthorized
    from seriatim.engines.kafka.event_reader import KafkaEventReader
    from seriatim.engines.kafka.event_writer import KafkaDeadLetterWriter, KafkaEventWriter
    from seriatim.engines.kafka.lag import KafkaLag
    from seriatim.engines.kafka.producer import Producer
    from seriatim.engines.kafka.topic_control import KafkaTopicControl
    from seriatim.engines.redis.address import RedisAddress
    from seriatim.engines.redis.client import RedisClient
    from seriatim.engines.redis.connection import Unsupported
    from seriatim.engines.redis.dial import RedisDialer
    from seriatim.engines.redis.directory import RedisDirectory
    from seriatim.engines.redis.push import RedisPush, RedisPushSubscriber
    from seriatim.engines.redis.quotas import RedisQuotas
    from seriatim.engines.redis.revocations import RedisRevocations
    from seriatim.operations.topics import PARTITIONS, FragileTopics, weaknesses
    from seriatim.runtime.server.lag_monitor import LagMonitor
    from seriatim.runtime.telemetry.counted_message_log import CountedDynamoLog
    from seriatim.runtime.telemetry.engine_counters import (
        dynamodb_counters,
        kafka_counters,
        push_counters,
        redis_counters,
    )
    from seriatim.runtime.wiring.dynamodb import DynamoDbUrl, StoreUnreachable, dynamodb
except ModuleNotFoundError as missing:
    raise StartupError(
        f"these engines need more packages ({missing.name} is missing): "
        "pip install 'seriatim[server,dynamodb,kafka,redis,rpc]'"
    ) from missing

_WITH_STORE = (ProcessRole.INGEST, ProcessRole.FANOUT, ProcessRole.API)
_WITH_DIRECTORY = (ProcessRole.GATEWAY, ProcessRole.FANOUT, ProcessRole.API)
_WITH_PLANE = (ProcessRole.GATEWAY, ProcessRole.API)
_log = logging.getLogger("seriatim")
_NOBODY = "nobody"  # asked for by probes: no id of ours looks like this


class DistributedEngineSet(EngineSet):
    def __init__(self, settings: Settings, metrics: Metrics, clock: Clock, run_id: str) -> None:
        self.remote: GrpcDurability | None = None
        self.parts: list[Part] = [("metrics", self._tick)]
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._run_id = run_id
        self._opened = AsyncExitStack()
        self._dynamo: DynamoClient | None = None
        self._prefix = ""
        self._cluster: Cluster | None = None
        self._subscriber: RedisPushSubscriber | None = None
        self._reader: KafkaEventReader | None = None
        self._lag: LagMonitor | None = None
        metrics.engine_counters.append(self._engine_counters)

    @classmethod
    async def open(cls, settings: Settings, metrics: Metrics, clock: Clock, run_id: str) -> "DistributedEngineSet":
        """Raises `StartupError`. Nothing is asked yet: see `reach`."""
        engines = cls(settings, metrics, clock, run_id)
        try:
            if engines._has(_WITH_STORE):
                await engines._open_store_and_log()
            if engines._has(_WITH_DIRECTORY):
                engines._opened.push_async_callback(engines._redis.close)
            if engines._has(_WITH_PLANE) and settings.ingest:
                engines._dial()
        except (StoreUnreachable, ValueError, OSError) as error:
            await engines.close()
            raise StartupError(str(error)) from error
        return engines

    # --- what each role gets ------------------------------------------------------------------------------------------

    def gateway_ports(self) -> GatewayPorts:
        subscriber = RedisPushSubscriber(self._redis_dialer, self._clock)
        self._opened.push_async_callback(subscriber.close)
        self._subscriber = subscriber
        return GatewayPorts(
            directory=RedisDirectory(self._redis),
            push=RedisPush(self._redis),
            subscriber=subscriber,
            revocations=RedisRevocations(self._redis, self._clock),
        )

    def ingest_ports(self) -> IngestPorts:
        return IngestPorts(
            log=CountedDynamoLog(self._store, self._metrics.durability),
            events=KafkaEventWriter(self._producer("ingest", MESSAGES)),
            sessions=DynamoSessions(self._rows),
            user_chats=DynamoUserChats(self._rows),
        )

    def fanout_ports(self, group: str, consumer_id: str) -> FanoutPorts:
        group = self._kafka.prefixed(group)  # two installations on one Kafka are two groups, too
        topics = _topics(MESSAGES, MEMBERSHIPS)
        self._lag = LagMonitor(KafkaLag(self._kafka, topics, group, dead_letters=PARTITIONS[DEAD_LETTERS]), self._clock)
        self.parts.append(("lag", self._lag.run))
        self._reader = KafkaEventReader(self._kafka, topics, group, consumer_id)
        return FanoutPorts(
            reader=self._reader,
            dead_letters=KafkaDeadLetterWriter(self._producer("fanout", DEAD_LETTERS)),
            roster=DynamoRoster(self._rows),
            directory=RedisDirectory(self._redis),
            push=RedisPush(self._redis),
        )

    def api_ports(self) -> ApiPorts:
        return ApiPorts(
            accounts=DynamoAccounts(self._store),
            catalog=DynamoCatalog(self._store),
            delivery=DynamoDeliveryState(self._rows),
            events=KafkaEventWriter(self._producer("api", MEMBERSHIPS, CHATS)),
            request_keys=DynamoRequestKeys(self._store),
            quotas=RedisQuotas(self._redis),
            revocations=RedisRevocations(self._redis, self._clock),
            directory=RedisDirectory(self._redis),
            push=RedisPush(self._redis),
        )

    def listener(self, plane: DurabilityPlane, sessions: Sessions) -> IngestListener | None:
        if self._settings.rpc_address is None:
            return None
        self._metrics.grpc.listens = True
        return DurabilityServer(
            plane,
            sessions,
            self._clock,
            token=self._settings.rpc_token,
            tls=_tls(self._settings),
            observe=self._metrics.grpc,
        )

    def operator_routes(self) -> Mapping[tuple[str, str], Handler]:
        return {}

    # --- how it is ----------------------------------------------------------------------------------------------------

    async def reach(self) -> None:
        if self._has(_WITH_DIRECTORY):
            await self._reach_redis()
            await self._warn_of_eviction()
        if self._has(_WITH_STORE):
            await self._ask_store(limits.STORE_TIMEOUT_S)
            await asyncio.to_thread(check_partitions, self._kafka, PARTITIONS, timeout_s=limits.KAFKA_ADMIN_S)
            if self._settings.env == "prod":
                await self._refuse_fragile_topics()

    async def _reach_redis(self) -> None:
        try:
            await self._redis.ping(timeout_s=limits.STORE_TIMEOUT_S)
        except ServiceUnavailable as error:
            if isinstance(error.__cause__, Unsupported):
                raise StartupError(str(error.__cause__)) from error
            raise

    async def _warn_of_eviction(self) -> None:
        policy = await self._redis.eviction_policy(timeout_s=limits.STORE_TIMEOUT_S)
        if policy not in (None, "noeviction"):
            log_event(
                _log,
                logging.WARNING,
                "redis_evicts",
                maxmemory_policy=policy,
                next_step="a full Redis would forget which tokens were revoked: set maxmemory-policy to noeviction",
            )

    async def _refuse_fragile_topics(self) -> None:
        try:
            found = await weaknesses(KafkaTopicControl(self._kafka), prefix=self._kafka.prefix)
        except NotAuthorized as error:
            step = "allow DescribeConfigs on the topics, or run `seriatim topics verify` with other rights"
            log_event(_log, logging.WARNING, "topics_not_checked", error=error.message, next_step=step)
            return
        if not found:
            return
        listed = "; ".join([f"{each.topic}: {each.what} is {each.found}, not {each.expected}" for each in found])
        if not self._settings.events_fragile_in_prod:
            raise FragileTopics(
                f"env is prod, and the event log does not survive the loss of a broker: {listed}. Make more copies "
                "with kafka-reassign-partitions, mend settings with `seriatim topics create`, or accept it with "
                "events_fragile_in_prod = true"
            )
        log_event(_log, logging.WARNING, "topics_fragile", found=listed, next_step="see `seriatim topics verify`")

    async def answers(self) -> Mapping[str, bool]:
        found: dict[str, bool] = {}
        if self._has(_WITH_STORE):
            found["store"] = await _answers(lambda: self._ask_store(limits.STORE_TIMEOUT_S))
        if self._has(_WITH_DIRECTORY):
            found["directory"] = await _answers(lambda: self._redis.write(timeout_s=limits.STORE_TIMEOUT_S))
        if self._lag is not None:
            # It has been given partitions, and the log was there when it was last asked.
            found["events"] = self._metrics.fanout.rebalances > 0 and self._lag.answers
        return found

    async def backlog(self) -> Backlog:
        return NO_BACKLOG if self._lag is None else self._lag.backlog

    async def close(self) -> None:
        await self._opened.aclose()

    async def _ask_store(self, timeout_s: float) -> None:
        """What the role may read anyway: fanout has no right to sessions, and REST none to counters."""
        here = self._settings.here
        if ProcessRole.INGEST in here:
            await DynamoMessageLog(self._store).counters([_NOBODY], timeout_s=timeout_s)
        elif ProcessRole.API in here:
            await DynamoSessions(self._rows).session(_NOBODY, timeout_s=timeout_s)
        else:
            await DynamoRoster(self._rows).members(_NOBODY, timeout_s=timeout_s)

    # --- what runs beside the planes ----------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._metrics.tick(self._clock.monotonic())
            await asyncio.sleep(self._settings.sweep_seconds)

    def _engine_counters(self) -> Sequence[EngineCounter]:
        """What the engines of this process count by themselves."""
        found: list[EngineCounter] = []
        if self._dynamo is not None:
            found += dynamodb_counters(self._dynamo)
        if self._has(_WITH_DIRECTORY):
            found += redis_counters(self._redis_dialer, self._redis)
        if self._reader is not None:
            found += kafka_counters(self._reader)
        if self._subscriber is not None:
            found += push_counters(self._subscriber)
        return found

    # --- opening ------------------------------------------------------------------------------------------------------

    def _has(self, roles: Sequence[ProcessRole]) -> bool:
        return any(role in self._settings.here for role in roles)

    async def _open_store_and_log(self) -> None:
        place = DynamoDbUrl.parse(self._settings.store)
        self._cluster = Cluster.parse(self._settings.events)
        self._dynamo = await self._opened.enter_async_context(dynamodb(place.endpoint, place.region, self._clock))
        self._prefix = place.prefix

    @property
    def _store(self) -> DynamoStore:
        assert self._dynamo is not None, "this role has no store"
        return DynamoStore(self._dynamo, self._clock, prefix=self._prefix)

    @property
    def _rows(self) -> ReadOnlyStore:
        """For handles that only read, and all that fanout gets: there is nothing in it to write with."""
        assert self._dynamo is not None, "this role has no store"
        return ReadOnlyStore(self._dynamo, self._clock, prefix=self._prefix)

    @property
    def _kafka(self) -> Cluster:
        assert self._cluster is not None, "this role has no event log"
        return self._cluster

    @cached_property
    def _redis_dialer(self) -> RedisDialer:
        return RedisDialer(RedisAddress.parse(self._settings.directory))

    @cached_property
    def _redis(self) -> RedisClient:
        return RedisClient(self._redis_dialer)

    def _producer(self, role: str, *topics: str) -> Producer:
        """One for each role: it knows no topics but those that the role may write to."""
        producer = Producer(self._kafka, _topics(*topics), f"{role}-{self._run_id}")
        self._opened.push_async_callback(producer.close)
        return producer

    def _dial(self) -> None:
        settings = self._settings
        source, name = _address_source(settings.ingest)
        dialer = GrpcDialer(token=settings.rpc_token, tls=_tls(settings), server_name=name)
        self.remote = remote = GrpcDurability(source, dialer, self._clock, observe=self._metrics.grpc)
        self._metrics.grpc.dials = True
        self.parts.append(("durability", remote.run))


def _address_source(places: Sequence[str]) -> tuple[AddressSource, str]:
    """And by which name their certificates are checked, if not by their addresses."""
    if places[0].startswith(DNS):
        place = address(places[0].removeprefix(DNS))
        return DnsAddresses(place.host, place.port), place.host
    return StaticAddresses(places), ""


def _tls(settings: Settings) -> MutualTls | None:
    if not settings.rpc_tls_ca:
        return None
    ca, cert, key = (
        Path(path).read_bytes() for path in (settings.rpc_tls_ca, settings.rpc_tls_cert, settings.rpc_tls_key)
    )
    return MutualTls(ca=ca, cert=cert, key=key)


def _topics(*names: str) -> Mapping[str, int]:
    return {name: PARTITIONS[name] for name in names}


async def _answers(question: Callable[[], Awaitable[None]]) -> bool:
    try:
        await question()
    except SeriatimError:
        return False
    return True
