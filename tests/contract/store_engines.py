"""The engines that the store suites run on. An engine joins by one more line in `ENGINES`."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from seriatim.engines.dynamodb.accounts import DynamoAccounts, DynamoSessions
from seriatim.engines.dynamodb.catalog import DynamoCatalog, DynamoRoster, DynamoUserChats
from seriatim.engines.dynamodb.delivery_state import DynamoDeliveryState
from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.engines.dynamodb.request_keys import DynamoRequestKeys
from seriatim.engines.dynamodb.rows.attributes import S
from seriatim.engines.dynamodb.store import COUNTERS, DynamoStore, ReadOnlyStore
from seriatim.engines.dynamodb.transport.client import DynamoClient
from seriatim.engines.embedded.accounts import EmbeddedAccounts, EmbeddedSessions
from seriatim.engines.embedded.catalog import EmbeddedCatalog, EmbeddedRoster, EmbeddedUserChats
from seriatim.engines.embedded.message_log import EmbeddedDeliveryState, EmbeddedMessageLog
from seriatim.engines.embedded.request_keys import EmbeddedRequestKeys
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.accounts import Accounts, Sessions
from seriatim.ports.catalog import Catalog, Roster, UserChats
from seriatim.ports.message_log import CounterRepair, DeliveryState, MessageLog
from seriatim.ports.request_keys import RequestKeys
from seriatim.simulation.stores.accounts import MemoryAccounts, MemorySessions
from seriatim.simulation.stores.catalog import MemoryCatalog, MemoryRoster, MemoryUserChats
from seriatim.simulation.stores.message_log import MemoryDeliveryState, MemoryMessageLog
from seriatim.simulation.stores.request_keys import MemoryRequestKeys
from seriatim.simulation.stores.tables import MemoryStore
from tests.support.policies import Need, PolicedClient
from tests.support.real_dynamodb import PATIENCE_S, PREFIX, CarefulClient, client_with_tables


class StoreEngine(Protocol):
    """One store, empty at first. `log`, `catalog`, `accounts` and so on give new handles, as a new process has."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def reopen(self) -> None:
        """Every process dies without a goodbye, then the store is opened again. Handles from before are dead."""
        ...

    async def lose_counter(self, chat_id: str) -> None:
        """An accident: the chat's counter row is gone."""
        ...

    async def damage_counter(self, chat_id: str) -> None:
        """An accident: the chat's counter row is there and cannot be read."""
        ...

    def log(self) -> MessageLog: ...

    def delivery_state(self) -> DeliveryState: ...

    def repair(self) -> CounterRepair: ...

    def catalog(self) -> Catalog: ...

    def roster(self) -> Roster: ...

    def user_chats(self) -> UserChats: ...

    def accounts(self) -> Accounts: ...

    def sessions(self) -> Sessions: ...

    def request_keys(self) -> RequestKeys: ...


class MemoryEngine(StoreEngine):
    """The store outlives every process, so there is nothing to do when they die."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.wire = Wire()

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    async def reopen(self) -> None:
        return

    async def lose_counter(self, chat_id: str) -> None:
        self.store.lose_counter(chat_id)

    async def damage_counter(self, chat_id: str) -> None:
        self.store.unreadable[chat_id] = None

    def log(self) -> MessageLog:
        return MemoryMessageLog(self.store, self.wire)

    def delivery_state(self) -> DeliveryState:
        return MemoryDeliveryState(self.store, self.wire)

    def repair(self) -> CounterRepair:
        return MemoryMessageLog(self.store, self.wire)

    def catalog(self) -> Catalog:
        return MemoryCatalog(self.store, self.wire)

    def roster(self) -> Roster:
        return MemoryRoster(self.store, self.wire)

    def user_chats(self) -> UserChats:
        return MemoryUserChats(self.store, self.wire)

    def accounts(self) -> Accounts:
        return MemoryAccounts(self.store, self.wire)

    def sessions(self) -> Sessions:
        return MemorySessions(self.store, self.wire)

    def request_keys(self) -> RequestKeys:
        return MemoryRequestKeys(self.store, self.wire)


class EmbeddedEngine(StoreEngine):
    """A folder of its own. When every process dies, the files are as they were at that moment: a copy shows them."""

    async def open(self) -> None:
        self._root = tempfile.TemporaryDirectory(prefix="seriatim-")
        self._opened = 0
        self.folder = Folder.open(self._path())

    async def close(self) -> None:
        await self.folder.close()
        self._root.cleanup()

    async def reopen(self) -> None:
        before, died = self._path(), self.folder
        self._opened += 1
        shutil.copytree(before, self._path())
        self.folder = Folder.open(self._path(), create=False)
        await died.close()

    async def lose_counter(self, chat_id: str) -> None:
        await self.folder.writer.commit(
            "accident", lambda transaction: transaction.delete(rows.counter_key(chat_id)), timeout_s=5
        )

    async def damage_counter(self, chat_id: str) -> None:
        damaged = b"\xc1 no release writes this"
        await self.folder.writer.commit(
            "accident", lambda transaction: transaction.put(rows.counter_key(chat_id), damaged), timeout_s=5
        )

    def log(self) -> MessageLog:
        return EmbeddedMessageLog(self.folder)

    def delivery_state(self) -> DeliveryState:
        return EmbeddedDeliveryState(self.folder)

    def repair(self) -> CounterRepair:
        return EmbeddedMessageLog(self.folder)

    def catalog(self) -> Catalog:
        return EmbeddedCatalog(self.folder)

    def roster(self) -> Roster:
        return EmbeddedRoster(self.folder)

    def user_chats(self) -> UserChats:
        return EmbeddedUserChats(self.folder)

    def accounts(self) -> Accounts:
        return EmbeddedAccounts(self.folder)

    def sessions(self) -> Sessions:
        return EmbeddedSessions(self.folder)

    def request_keys(self) -> RequestKeys:
        return EmbeddedRequestKeys(self.folder)

    def _path(self) -> Path:
        return Path(self._root.name) / f"data-{self._opened}"


class DynamoEngine(StoreEngine):
    """A real DynamoDB Local, whose tables are emptied afterwards. It outlives every process; their sockets do not.

    A handle may do what the policy of the role that gets it allows, and its promises must be kept with that.
    """

    def __init__(self) -> None:
        self.needs: dict[str, dict[Need, None]] = {"ingest": {}, "fanout": {}, "api": {}}

    async def open(self) -> None:
        self.client = await client_with_tables()
        self.store = self.client.store()

    async def close(self) -> None:
        await self.client.empty()
        await self.client.close()

    async def reopen(self) -> None:
        before = self.client
        await before.close()
        self.client = CarefulClient(before.url)
        self.client.requests += before.requests
        self.store = self.client.store()

    async def lose_counter(self, chat_id: str) -> None:
        accident = self.store.write_request(COUNTERS, {"Key": {"chat_id": S(chat_id)}})
        await self.store.delete(accident, until=self.store.until(PATIENCE_S))

    async def damage_counter(self, chat_id: str) -> None:
        accident = self.store.write_request(
            COUNTERS,
            {"Key": {"chat_id": S(chat_id)}, "UpdateExpression": "SET sequence_counter = :damaged"},
            values={":damaged": S("no release writes this")},
        )
        await self.store.update(accident, until=self.store.until(PATIENCE_S))

    def log(self) -> MessageLog:
        return DynamoMessageLog(self._writes("ingest"))

    def delivery_state(self) -> DeliveryState:
        return DynamoDeliveryState(self._reads("api"))

    def repair(self) -> CounterRepair:
        return DynamoMessageLog(self.store)

    def catalog(self) -> Catalog:
        return DynamoCatalog(self._writes("api"))

    def roster(self) -> Roster:
        return DynamoRoster(self._reads("fanout"))

    def user_chats(self) -> UserChats:
        return DynamoUserChats(self._reads("ingest"))

    def accounts(self) -> Accounts:
        return DynamoAccounts(self._writes("api"))

    def sessions(self) -> Sessions:
        return DynamoSessions(self._reads("ingest"))

    def request_keys(self) -> RequestKeys:
        return DynamoRequestKeys(self._writes("api"))

    def _reads(self, role: str) -> ReadOnlyStore:
        return ReadOnlyStore(self._policed(role), SystemClock(), prefix=PREFIX)

    def _writes(self, role: str) -> DynamoStore:
        return DynamoStore(self._policed(role), SystemClock(), prefix=PREFIX)

    def _policed(self, role: str) -> DynamoClient:
        return PolicedClient(self.client, role, prefix=PREFIX, needs=self.needs[role])


ENGINES: dict[str, Callable[[], StoreEngine]] = {
    "memory": MemoryEngine,
    "embedded": EmbeddedEngine,
    "dynamodb": DynamoEngine,
}
