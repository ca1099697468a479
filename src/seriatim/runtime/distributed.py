"""The world of several processes: DynamoDB is the truth, Kafka the event log, Redis the routing; gRPC between planes.

Only what the roles of this process need is opened: a gateway has neither the address of the store nor of the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec

from seriatim.domain.errors import SeriatimError
from seriatim.domain.limits import KAFKA_ADMIN_S, STORE_TIMEOUT_S
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import CHATS, DEAD_LETTERS, MEMBERSHIPS, MESSAGES
from seriatim.ports.message_log import Allocation, PublishedAhead
from seriatim.runtime.counting import DurabilityCounts
from seriatim.runtime.metrics import Metrics
from seriatim.runtime.roles import Role
from seriatim.runtime.server import CannotStart
from seriatim.runtime.settings import DNS, Settings, address
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
    from seriatim.engines.dynamodb.catalog import DynamoCatalog, DynamoRoster
    from seriatim.engines.dynamodb.delivery_state import DynamoDeliveryState
    from seriatim.engines.dynamodb.message_log import DynamoMessageLog
    from seriatim.engines.dynamodb.request_keys import DynamoRequestKeys
    from seriatim.engines.dynamodb.store import Store
    from seriatim.engines.kafka.cluster import Cluster, check_partitions
    from seriatim.engines.kafka.event_log import KafkaDeadLetterWriter, KafkaEventWriter
    from seriatim.engines.kafka.event_reader import KafkaEventReader
    from seriatim.engines.kafka.producer import Producer
    from seriatim.engines.redis.address import Address as RedisAddress
    from seriatim.engines.redis.client import RedisClient
    from seriatim.engines.redis.dial import Dialer as RedisDialer
    from seriatim.engines.redis.directory import RedisDirectory
    from seriatim.engines.redis.push import RedisPush, RedisPushSubscriber
    from seriatim.engines.redis.quotas import RedisQuotas
    from seriatim.engines.redis.revocations import RedisRevocations
    from seriatim.engines.rpc.dial import Dialer, Tls
    from seriatim.engines.rpc.durability import RpcDurability
    from seriatim.engines.rpc.finding import Finder, Listed, Named
    from seriatim.engines.rpc.server import DurabilityServer
    from seriatim.operations.topics import PARTITIONS
    from seriatim.runtime.dynamodb import CannotReach, dynamodb
except ModuleNotFoundError as missing:
    raise CannotStart(
        f"these engines need more packages ({missing.name} is missing): "
        "pip install 'seriatim[server,dynamodb,kafka,redis,rpc]'"
    ) from missing

_WITH_STORE = (Role.INGEST, Role.FANOUT, Role.API)
_WITH_DIRECTORY = (Role.GATEWAY, Role.FANOUT, Role.API)
_WITH_PLANE = (Role.GATEWAY, Role.API)
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
        self._dynamo: Store | None = None
        self._cluster: Cluster | None = None

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
            sessions=DynamoSessions(self._store),
        )

    def for_fanout(self, group: str, consumer_id: str) -> ForFanout:
        return ForFanout(
            # Two installations on one Kafka are two groups, too.
            reader=KafkaEventReader(self._kafka, _topics(MESSAGES, MEMBERSHIPS), self._kafka.name(group), consumer_id),
            letters=KafkaDeadLetterWriter(self._producer("fanout", DEAD_LETTERS)),
            roster=DynamoRoster(self._store),
            directory=RedisDirectory(self._redis),
            push=RedisPush(self._redis),
        )

    def for_api(self) -> ForApi:
        return ForApi(
            accounts=DynamoAccounts(self._store),
            catalog=DynamoCatalog(self._store),
            delivery=DynamoDeliveryState(self._store),
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

    # --- how it is ----------------------------------------------------------------------------------------------------

    async def reach(self) -> None:
        if self._has(_WITH_DIRECTORY):
            await self._redis.ping(timeout_s=STORE_TIMEOUT_S)
        if self._has(_WITH_STORE):
            await self._ask_store(STORE_TIMEOUT_S)
            await asyncio.to_thread(check_partitions, self._kafka, PARTITIONS, timeout_s=KAFKA_ADMIN_S)

    async def answers(self) -> Mapping[str, bool]:
        found: dict[str, bool] = {}
        if self._has(_WITH_STORE):
            found["store"] = await _answers(lambda: self._ask_store(STORE_TIMEOUT_S))
        if self._has(_WITH_DIRECTORY):
            found["directory"] = await _answers(lambda: self._redis.ping(timeout_s=STORE_TIMEOUT_S))
        if Role.FANOUT in self._settings.here:
            found["events"] = self._metrics.fanout.rebalances > 0  # it has been given partitions
        return found

    async def backlog(self) -> Backlog:
        """Not asked here: librdkafka's question for a group's offsets can end the process that asks it."""
        return NO_BACKLOG

    async def close(self) -> None:
        await self._opened.aclose()

    async def _ask_store(self, timeout_s: float) -> None:
        """What the role may read anyway: fanout has no right to sessions, and REST none to counters."""
        here = self._settings.here
        if Role.INGEST in here:
            await DynamoMessageLog(self._store).standings([_NOBODY], timeout_s=timeout_s)
        elif Role.API in here:
            await DynamoSessions(self._store).session(_NOBODY, timeout_s=timeout_s)
        else:
            await DynamoRoster(self._store).members(_NOBODY, timeout_s=timeout_s)

    # --- what runs beside the planes ----------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._metrics.tick(self._clock.monotonic())
            await asyncio.sleep(self._settings.sweep_seconds)

    # --- opening ------------------------------------------------------------------------------------------------------

    def _has(self, roles: Sequence[Role]) -> bool:
        return any(role in self._settings.here for role in roles)

    async def _open_store_and_log(self) -> None:
        place = StorePlace.parse(self._settings.store)
        self._cluster = Cluster.parse(self._settings.events)
        client = await self._opened.enter_async_context(dynamodb(place.endpoint, place.region, self._clock))
        self._dynamo = Store(client, self._clock, prefix=place.prefix)

    @property
    def _store(self) -> Store:
        assert self._dynamo is not None, "this role has no store"
        return self._dynamo

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


class StorePlace(msgspec.Struct, frozen=True, kw_only=True):
    """`dynamodb://?region=R&prefix=P&endpoint=URL`, all of them optional."""

    endpoint: str | None = None
    region: str | None = None
    prefix: str = ""

    @classmethod
    def parse(cls, url: str) -> "StorePlace":
        """Raises `ValueError`."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        unknown = [name for name in options if name not in cls.__struct_fields__]
        if parts.netloc or parts.path or unknown:
            raise ValueError(
                "store looks like dynamodb://?region=eu-west-1&prefix=chat_&endpoint=http://localhost:8000"
            )
        return msgspec.convert(options, cls)


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


class CountedDynamoLog(DynamoMessageLog):
    """The store, and how often it did not allocate: the plane retries, so nobody else would know."""

    def __init__(self, store: Store, counts: DurabilityCounts) -> None:
        super().__init__(store)
        self._counts = counts

    async def allocate(
        self,
        chat_id: str,
        count: int,
        *,
        published_through: int,
        published_message: int | None,
        now_ms: int,
        timeout_s: float,
    ) -> Allocation | PublishedAhead:
        try:
            return await super().allocate(
                chat_id,
                count,
                published_through=published_through,
                published_message=published_message,
                now_ms=now_ms,
                timeout_s=timeout_s,
            )
        except SeriatimError:
            self._counts.allocation_errors += 1
            raise
