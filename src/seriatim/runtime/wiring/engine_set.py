"""What engines give to each role: the handles it may have, and no others. There are two worlds of them.

`embedded` keeps everything in one folder and one process; `distributed` shares DynamoDB, Kafka and Redis.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from seriatim.ports.accounts import Accounts, Sessions
from seriatim.ports.atomic_store import AtomicStore
from seriatim.ports.catalog import Catalog, Roster, UserChats
from seriatim.ports.directory import Directory
from seriatim.ports.durability import Durability, History
from seriatim.ports.event_log import DeadLetterWriter, EventReader, EventWriter, Partition
from seriatim.ports.message_log import DeliveryState, MessageLog
from seriatim.ports.push import Push, PushSubscriber
from seriatim.ports.quotas import Quotas
from seriatim.ports.request_keys import RequestKeys
from seriatim.ports.revocations import Revocations
from seriatim.runtime.server.plain_app import Handler

Part = tuple[str, Callable[[], Coroutine[object, object, None]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayPorts:
    """Neither the store nor the event log: what a gateway wants of them, it asks of an ingest."""

    directory: Directory
    push: Push
    subscriber: PushSubscriber
    revocations: Revocations


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestPorts:
    log: MessageLog
    events: EventWriter
    sessions: Sessions
    user_chats: UserChats
    atomic_store: AtomicStore | None = None  # where messages and events lie in one place


@dataclass(frozen=True, kw_only=True, slots=True)
class FanoutPorts:
    """It reads, and writes nothing that lasts but dead letters."""

    reader: EventReader
    dead_letters: DeadLetterWriter
    roster: Roster
    directory: Directory
    push: Push


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiPorts:
    """It can tell how far messages are, and cannot write any."""

    accounts: Accounts
    catalog: Catalog
    delivery: DeliveryState
    events: EventWriter
    request_keys: RequestKeys
    quotas: Quotas
    revocations: Revocations
    directory: Directory
    push: Push


class DurabilityPlane(Durability, History, Protocol):
    """The durability plane, here or elsewhere."""


class RemoteDurabilityPlane(DurabilityPlane, Sessions, Protocol):
    """Ingest processes, found and dialled by a part that runs beside the planes."""

    @property
    def ready(self) -> Sequence[str]:
        """Those that can be asked at this moment."""
        ...

    @property
    def breaker_open(self) -> bool:
        """One of them keeps failing: others get its chats, as long as there are any."""
        ...


class IngestListener(Protocol):
    """Where other processes reach our ingest."""

    leaving: bool

    async def start(self, host: str, port: int) -> int:
        """Returns the port. Raises `OSError`."""
        ...

    async def leave(self) -> None:
        """Asks everybody to go elsewhere, and waits for them a little."""
        ...

    async def stop(self) -> None: ...


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Of the event log. None: this world cannot tell."""

    lag_records: Mapping[Partition, int]
    ends: Mapping[Partition, int]  # of the same partitions: the offset of the next event
    lag_s: float | None
    dead_letters: int | None
    under_replicated: int | None = None  # partitions with fewer copies in step than they should have


NO_BACKLOG = Backlog(lag_records={}, ends={}, lag_s=None, dead_letters=None)


class EngineSet(Protocol):
    """Opened for the roles of one process; asking it for another role's handles is a bug."""

    parts: Sequence[Part]
    remote: RemoteDurabilityPlane | None

    def gateway_ports(self) -> GatewayPorts: ...

    def ingest_ports(self) -> IngestPorts: ...

    def fanout_ports(self, group: str, consumer_id: str) -> FanoutPorts: ...

    def api_ports(self) -> ApiPorts: ...

    def listener(self, plane: DurabilityPlane, sessions: Sessions) -> IngestListener | None:
        """None where nobody could have a use for one."""
        ...

    def operator_routes(self) -> Mapping[tuple[str, str], Handler]:
        """What only the process that holds the engines can do for an operator; empty where tools reach them alone."""
        ...

    async def reach(self) -> None:
        """Raises `ServiceUnavailable` while an engine is away, and any other error when waiting will not help."""
        ...

    async def answers(self) -> Mapping[str, bool]:
        """Engine by engine: whether it does its work, as far as it is known without waiting for long."""
        ...

    async def backlog(self) -> Backlog: ...

    async def close(self) -> None: ...
