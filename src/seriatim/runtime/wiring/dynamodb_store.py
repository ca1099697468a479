"""`store = dynamodb://`: people, chats and messages in DynamoDB, shared by all processes."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.engines.dynamodb.accounts import DynamoAccounts, DynamoSessions
from seriatim.engines.dynamodb.catalog import DynamoCatalog, DynamoRoster, DynamoUserChats
from seriatim.engines.dynamodb.delivery_state import DynamoDeliveryState
from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.engines.dynamodb.request_keys import DynamoRequestKeys
from seriatim.engines.dynamodb.store import DynamoStore, ReadOnlyStore
from seriatim.engines.dynamodb.transport.client import DynamoClient
from seriatim.ports.accounts import Accounts, Sessions
from seriatim.ports.catalog import Catalog, Roster, UserChats
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory
from seriatim.ports.message_log import DeliveryState, MessageLog
from seriatim.ports.request_keys import RequestKeys
from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.server.lifecycle import StartupError
from seriatim.runtime.server.plain_app import Handler
from seriatim.runtime.telemetry.counted_message_log import CountedSharedLog
from seriatim.runtime.telemetry.engine_counters import dynamodb_counters
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.wiring.dynamodb import DynamoDbUrl, StoreUnreachable, dynamodb
from seriatim.runtime.wiring.engine_set import BackgroundTask, StoreEngine

_PROBE_ID = "nobody"  # of rows that a probe asks for: no id that is minted here looks like this


class DynamoDbStore(StoreEngine):
    """Handles that only read get `ReadOnlyStore`, which has nothing to write with."""

    def __init__(
        self, client: DynamoClient, prefix: str, roles: Sequence[ProcessRole], metrics: Metrics, clock: Clock
    ) -> None:
        self.tasks: Sequence[BackgroundTask] = ()
        self._client = client
        self._prefix = prefix
        self._roles = roles
        self._metrics = metrics
        self._clock = clock
        self._opened = AsyncExitStack()
        metrics.engine_counters.append(lambda: dynamodb_counters(client))

    @classmethod
    async def open(cls, url: str, roles: Sequence[ProcessRole], metrics: Metrics, clock: Clock) -> "DynamoDbStore":
        """Sends no request yet. Raises `ValueError` for a URL that is none, and `StartupError`."""
        place = DynamoDbUrl.parse(url)
        async with AsyncExitStack() as opened:
            try:
                client = await opened.enter_async_context(dynamodb(place.endpoint, place.region, clock))
            except StoreUnreachable as error:
                raise StartupError(str(error)) from error
            engine = cls(client, place.prefix, roles, metrics, clock)
            engine._opened = opened.pop_all()
        return engine

    def message_log(self) -> MessageLog:
        return CountedSharedLog(DynamoMessageLog(self._store), self._metrics.durability)

    def atomic_store(self) -> None:
        return None

    def sessions(self) -> Sessions:
        return DynamoSessions(self._rows)

    def user_chats(self) -> UserChats:
        return DynamoUserChats(self._rows)

    def roster(self) -> Roster:
        return DynamoRoster(self._rows)

    def accounts(self) -> Accounts:
        return DynamoAccounts(self._store)

    def catalog(self) -> Catalog:
        return DynamoCatalog(self._store)

    def delivery_state(self) -> DeliveryState:
        return DynamoDeliveryState(self._rows)

    def request_keys(self) -> RequestKeys:
        return DynamoRequestKeys(self._store)

    def operator_routes(self, directory: Directory) -> Mapping[tuple[str, str], Handler]:
        return {}

    async def check_reachable(self) -> None:
        await self._probe()

    async def availability(self) -> Mapping[str, str | None]:
        try:
            await self._probe()
        except SeriatimError as error:
            return {"store": error.log_reason}
        return {"store": None}

    async def close(self) -> None:
        await self._opened.aclose()

    async def _probe(self) -> None:
        """Reads what the role may read anyway: fanout has no right to sessions, and REST none to counters."""
        timeout_s = limits.STORE_TIMEOUT_S
        if ProcessRole.INGEST in self._roles:
            await DynamoMessageLog(self._store).counters([_PROBE_ID], timeout_s=timeout_s)
        elif ProcessRole.API in self._roles:
            await DynamoSessions(self._rows).session(_PROBE_ID, timeout_s=timeout_s)
        else:
            await DynamoRoster(self._rows).members(_PROBE_ID, timeout_s=timeout_s)

    @property
    def _store(self) -> DynamoStore:
        return DynamoStore(self._client, self._clock, prefix=self._prefix)

    @property
    def _rows(self) -> ReadOnlyStore:
        return ReadOnlyStore(self._client, self._clock, prefix=self._prefix)
