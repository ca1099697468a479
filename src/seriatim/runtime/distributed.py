"""The world of several processes: DynamoDB is the truth, Kafka the event log, Redis the routing; gRPC between planes.

Only what the roles of this process need is opened: a gateway has neither the address of the store nor of the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path

from seriatim.domain.errors import SeriatimError, ServiceUnavailable
from seriatim.domain.limits import KAFKA_ADMIN_S, STORE_TIMEOUT_S
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import CHATS, DEAD_LETTERS, MEMBERSHIPS, MESSAGES
from seriatim.runtime.logs import log_event
from seriatim.runtime.metrics import Metrics, Tally
from seriatim.runtime.roles import Role
from seriatim.runtime.server import CannotStart
from seriatim.runtime.settings import DNS, Settings, address
from seriatim.runtime.small_app import Handler
from seriatim.runtime.world import (
    NO_BACKLOG,
    Backlog,
    ForApi,
    ForFanout,
    ForGateway,
    ForIngest,
    IngestListener,
    Part,
    Plane,
    World,
)

try:
    from seriatim.engines.dynamodb.accounts import DynamoAccounts, DynamoSessions
    from seriatim.engines.dynamodb.catalog import DynamoCatalog, DynamoRoster, DynamoUserChats
    from seriatim.engines.dynamodb.client import Client
    from seriatim.engines.dynamodb.delivery_state import DynamoDeliveryState
    from seriatim.engines.dynamodb.message_log import DynamoMessageLog
    from seriatim.engines.dynamodb.request_keys import DynamoRequestKeys
    from seriatim.engines.dynamodb.store import Rows, Store
    from seriatim.engines.kafka.cluster import Cluster, check_partitions
    from seriatim.engines.kafka.control import KafkaTopicControl
    from seriatim.engines.kafka.errors import NotAllowed
    from seriatim.engines.kafka.event_log import KafkaDeadLetterWriter, KafkaEventWriter
    from seriatim.engines.kafka.event_reader import KafkaEventReader
    from seriatim.engines.kafka.lag import KafkaLag
    from seriatim.engines.kafka.producer import Producer
    from seriatim.engines.redis.address import Address as RedisAddress
    from seriatim.engines.redis.client import RedisClient
    from seriatim.engines.redis.dial import Dialer as RedisDialer
    from seriatim.engines.redis.directory import RedisDirectory
    from seriatim.engines.redis.link import Unsupported
    from seriatim.engines.redis.push import RedisPush, RedisPushSubscriber
    from seriatim.engines.redis.quotas import RedisQuotas
    from seriatim.engines.redis.revocations import RedisRevocations
    from seriatim.engines.rpc.dial import Dialer, Tls
    from seriatim.engines.rpc.durability import RpcDurability
    from seriatim.engines.rpc.finding import Finder, Listed, Named
    from seriatim.engines.rpc.server import DurabilityServer
    from seriatim.operations.topics import PARTITIONS, Fragile, weaknesses
    from seriatim.runtime.counted_log import CountedDynamoLog
    from seriatim.runtime.dynamodb import CannotReach, StorePlace, dynamodb
    from seriatim.runtime.lagging import LagWatch
    from seriatim.runtime.tallies import of_dynamodb, of_kafka, of_pushes, of_redis
except ModuleNotFoundError as missing:
    raise CannotStart(
        f"these engines need more packages ({missing.name} is missing): "
        "pip install 'seriatim[server,dynamodb,kafka,redis,rpc]'"
    ) from missing

_WITH_STORE = (Role.INGEST, Role.FANOUT, Role.API)
_WITH_DIRECTORY = (Role.GATEWAY, Role.FANOUT, Role.API)
_WITH_PLANE = (Role.GATEWAY, Role.API)
_log = logging.getLogger("seriatim")
_NOBODY = "nobody"  # asked for by probes: no id of ours looks like this


class DistributedWorld(World):
    def __init__(self, settings: Settings, metrics: Metrics, clock: Clock, run_id: str) -> None:
        self.remote: RpcDurability | None = None
        self.parts: list[Part] = [("metrics", self._tick)]
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._run_id = run_id
        self._opened = AsyncExitStack()
        self._dynamo: Client | None = None
        self._prefix = ""
        self._cluster: Cluster | None = None
        self._subscriber: RedisPushSubscriber | None = None
        self._reader: KafkaEventReader | None = None
        self._lag: LagWatch | None = None
        metrics.tallies.append(self._tallies)

    @classmethod
    async def open(cls, settings: Settings, metrics: Metrics, clock: Clock, run_id: str) -> "DistributedWorld":
        """Raises `CannotStart`. Nothing is asked yet: see `reach`."""
        world = cls(settings, metrics, clock, run_id)
        try:
            if world._has(_WITH_STORE):
                await world._open_store_and_log()
            if world._has(_WITH_DIRECTORY):
                world._opened.push_async_callback(world._redis.close)
            if world._has(_WITH_PLANE) and settings.ingest:
                world._dial()
        except (CannotReach, ValueError, OSError) as error:
            await world.close()
            raise CannotStart(str(error)) from error
        return world

    # --- what each role gets ------------------------------------------------------------------------------------------

    def for_gateway(self) -> ForGateway:
        subscriber = RedisPushSubscriber(self._redis_dialer, self._clock)
        self._opened.push_async_callback(subscriber.close)
        self._subscriber = subscriber
        return ForGateway(
            directory=RedisDirectory(self._redis),
            push=RedisPush(self._redis),
            subscriber=subscriber,
            revocations=RedisRevocations(self._redis, self._clock),
        )

    def for_ingest(self) -> ForIngest:
        return ForIngest(
            log=CountedDynamoLog(self._store, self._metrics.durability),
            events=KafkaEventWriter(self._producer("ingest", MESSAGES)),
            sessions=DynamoSessions(self._rows),
            user_chats=DynamoUserChats(self._rows),
        )

    def for_fanout(self, group: str, consumer_id: str) -> ForFanout:
        group = self._kafka.name(group)  # two installations on one Kafka are two groups, too
        topics = _topics(MESSAGES, MEMBERSHIPS)
        self._lag = LagWatch(KafkaLag(self._kafka, topics, group, letters=PARTITIONS[DEAD_LETTERS]), self._clock)
        self.parts.append(("lag", self._lag.run))
        self._reader = KafkaEventReader(self._kafka, topics, group, consumer_id)
        return ForFanout(
            reader=self._reader,
            letters=KafkaDeadLetterWriter(self._producer("fanout", DEAD_LETTERS)),
            roster=DynamoRoster(self._rows),
            directory=RedisDirectory(self._redis),
            push=RedisPush(self._redis),
        )

    def for_api(self) -> ForApi:
        return ForApi(
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

    def listener(self, plane: Plane, sessions: Sessions) -> IngestListener | None:
        if self._settings.rpc_address is None:
            return None
        self._metrics.rpc.listens = True
        return DurabilityServer(
            plane,
            sessions,
            self._clock,
            token=self._settings.rpc_token,
            tls=_tls(self._settings),
            observe=self._metrics.rpc,
        )

    def operator_routes(self) -> Mapping[tuple[str, str], Handler]:
        return {}

    # --- how it is ----------------------------------------------------------------------------------------------------

    async def reach(self) -> None:
        if self._has(_WITH_DIRECTORY):
            await self._reach_redis()
            await self._warn_of_eviction()
        if self._has(_WITH_STORE):
            await self._ask_store(STORE_TIMEOUT_S)
            await asyncio.to_thread(check_partitions, self._kafka, PARTITIONS, timeout_s=KAFKA_ADMIN_S)
            if self._settings.env == "prod":
                await self._refuse_fragile_topics()

    async def _reach_redis(self) -> None:
        try:
            await self._redis.ping(timeout_s=STORE_TIMEOUT_S)
        except ServiceUnavailable as error:
            if isinstance(error.__cause__, Unsupported):
                raise CannotStart(str(error.__cause__)) from error
            raise

    async def _warn_of_eviction(self) -> None:
        policy = await self._redis.eviction_policy(timeout_s=STORE_TIMEOUT_S)
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
        except NotAllowed as error:
            step = "allow DescribeConfigs on the topics, or run `seriatim topics verify` with other rights"
            log_event(_log, logging.WARNING, "topics_not_checked", error=error.message, next_step=step)
            return
        if not found:
            return
        listed = "; ".join([f"{each.topic}: {each.what} is {each.found}, not {each.expected}" for each in found])
        if not self._settings.events_fragile_in_prod:
            raise Fragile(
                f"env is prod, and the event log does not survive the loss of a broker: {listed}. Make more copies "
                "with kafka-reassign-partitions, mend settings with `seriatim topics create`, or accept it with "
                "events_fragile_in_prod = true"
            )
        log_event(_log, logging.WARNING, "topics_fragile", found=listed, next_step="see `seriatim topics verify`")

    async def answers(self) -> Mapping[str, bool]:
        found: dict[str, bool] = {}
        if self._has(_WITH_STORE):
            found["store"] = await _answers(lambda: self._ask_store(STORE_TIMEOUT_S))
        if self._has(_WITH_DIRECTORY):
            found["directory"] = await _answers(lambda: self._redis.write(timeout_s=STORE_TIMEOUT_S))
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
        if Role.INGEST in here:
            await DynamoMessageLog(self._store).standings([_NOBODY], timeout_s=timeout_s)
        elif Role.API in here:
            await DynamoSessions(self._rows).session(_NOBODY, timeout_s=timeout_s)
        else:
            await DynamoRoster(self._rows).members(_NOBODY, timeout_s=timeout_s)

    # --- what runs beside the planes ----------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._metrics.tick(self._clock.monotonic())
            await asyncio.sleep(self._settings.sweep_seconds)

    def _tallies(self) -> Sequence[Tally]:
        """What the engines of this process count by themselves."""
        found: list[Tally] = []
        if self._dynamo is not None:
            found += of_dynamodb(self._dynamo)
        if self._has(_WITH_DIRECTORY):
            found += of_redis(self._redis_dialer, self._redis)
        if self._reader is not None:
            found += of_kafka(self._reader)
        if self._subscriber is not None:
            found += of_pushes(self._subscriber)
        return found

    # --- opening ------------------------------------------------------------------------------------------------------

    def _has(self, roles: Sequence[Role]) -> bool:
        return any(role in self._settings.here for role in roles)

    async def _open_store_and_log(self) -> None:
        place = StorePlace.parse(self._settings.store)
        self._cluster = Cluster.parse(self._settings.events)
        self._dynamo = await self._opened.enter_async_context(dynamodb(place.endpoint, place.region, self._clock))
        self._prefix = place.prefix

    @property
    def _store(self) -> Store:
        assert self._dynamo is not None, "this role has no store"
        return Store(self._dynamo, self._clock, prefix=self._prefix)

    @property
    def _rows(self) -> Rows:
        """For handles that only read, and all that fanout gets: there is nothing in it to write with."""
        assert self._dynamo is not None, "this role has no store"
        return Rows(self._dynamo, self._clock, prefix=self._prefix)

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
        finder, name = _finder(settings.ingest)
        dialer = Dialer(token=settings.rpc_token, tls=_tls(settings), server_name=name)
        self.remote = remote = RpcDurability(finder, dialer, self._clock, observe=self._metrics.rpc)
        self._metrics.rpc.dials = True
        self.parts.append(("durability", remote.run))


def _finder(places: Sequence[str]) -> tuple[Finder, str]:
    """And by which name their certificates are checked, if not by their addresses."""
    if places[0].startswith(DNS):
        place = address(places[0].removeprefix(DNS))
        return Named(place.host, place.port), place.host
    return Listed(places), ""


def _tls(settings: Settings) -> Tls | None:
    if not settings.rpc_tls_ca:
        return None
    ca, cert, key = (
        Path(path).read_bytes() for path in (settings.rpc_tls_ca, settings.rpc_tls_cert, settings.rpc_tls_key)
    )
    return Tls(ca=ca, cert=cert, key=key)


def _topics(*names: str) -> Mapping[str, int]:
    return {name: PARTITIONS[name] for name in names}


async def _answers(question: Callable[[], Awaitable[None]]) -> bool:
    try:
        await question()
    except SeriatimError:
        return False
    return True
