"""What a gateway repeats: registering, so that sockets are not deaf, and probing, so that no loss stays (H9, S43)."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from seriatim.connection.head_probe import HeadProbe
from seriatim.connection.observer import GatewayObserver
from seriatim.connection.registrations import Registrations
from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.directory import Registration
from tests.unit.connection.fakes import CHAT, FakeDurability, FakePush
from tests.unit.connection.gateway_harness import GatewayHarness, a_sync, ask, turns

T = TypeVar("T")


async def test_h9_after_a_wipe_every_connection_is_registered_again_within_one_heartbeat(
    harness: GatewayHarness,
) -> None:
    one, _ = await harness.connect("device_1")
    other, _ = await harness.connect("device_2")
    harness.directory.registered.clear()
    await asyncio.sleep(30.1)
    assert list(harness.directory.registered) == [one.connection_id, other.connection_id]


async def test_a_failed_refresh_closes_no_connection_and_the_next_one_heals(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.directory.registered.clear()
    harness.directory.failure = OutcomeUnknown("away")
    await asyncio.sleep(31)
    harness.directory.failure = None
    await asyncio.sleep(29.5)
    assert socket.is_open
    assert list(harness.directory.registered) == [connection.connection_id]


async def test_a_connection_that_left_is_not_registered_again(harness: GatewayHarness) -> None:
    connection, _ = await harness.connect()
    connection.lost()
    await asyncio.sleep(100)
    assert harness.directory.registered == {}


async def test_w2_a_renewal_that_crosses_the_end_of_its_connection_and_is_applied_last_revives_nothing() -> None:
    registry, wire = InProcessRegistry(), _LateWire()
    registrations = Registrations(InProcessDirectory(registry, wire, lambda: 0), FakePush(), GatewayObserver())
    phone, laptop = _registration("phone"), _registration("laptop")
    await registrations.add(phone)
    await registrations.add(laptop)
    wire.late = "register"
    renewing = asyncio.create_task(registrations.renew())
    await turns()
    await registrations.remove(phone)
    wire.arrive.set()
    await renewing
    assert registry.connections(["user_1"], 0) == {"user_1": (laptop,)}


class _LateWire(Wire):
    """Calls of one kind are applied when `arrive` is set."""

    def __init__(self) -> None:
        self.late = ""
        self.arrive = asyncio.Event()

    async def call(
        self,
        operation: str,
        apply: Callable[[], T],
        *,
        timeout_s: float,
        finish: Callable[[], None] | None = None,
    ) -> T:
        if operation == self.late:
            await self.arrive.wait()
        return await super().call(operation, apply, timeout_s=timeout_s, finish=finish)


def _registration(connection_id: str) -> Registration:
    return Registration(
        connection_id=connection_id,
        user_id="user_1",
        device_id=f"device_{connection_id}",
        session_id="sess_1",
        gateway_id="gw_1",
        connected_at="2026-01-30T14:30:00.000Z",
    )


async def test_after_an_interruption_it_registers_and_probes_at_once(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.gateway.interrupted()
    harness.directory.registered.clear()
    harness.durability.chats[CHAT] = [1, 2]
    harness.gateway.resumed()
    await asyncio.sleep(0.5)
    assert list(harness.directory.registered) == [connection.connection_id]
    assert socket.messages == [2]


async def test_h9_a_probe_that_fails_is_repeated(harness: GatewayHarness) -> None:
    _, socket = await harness.synced([1])
    harness.durability.chats[CHAT] = [1, 2]
    harness.durability.failures = [OutcomeUnknown("away")]
    harness.gateway.resumed()
    await asyncio.sleep(29)
    assert socket.messages == []
    await asyncio.sleep(9)
    assert socket.messages == [2]


async def test_a_probe_that_finds_nothing_missing_reads_nothing(harness: GatewayHarness) -> None:
    await harness.synced([1, 2, 3])
    await asyncio.sleep(150)
    assert len(harness.durability.heads_asked) >= 3
    assert harness.durability.reads == []


async def test_a_chat_without_connections_is_not_probed(harness: GatewayHarness) -> None:
    connection, _ = await harness.synced([1])
    connection.lost()
    await asyncio.sleep(120)
    assert harness.durability.heads_asked == []


async def test_a_chat_that_was_never_synced_is_not_probed(harness: GatewayHarness) -> None:
    connection, _ = await harness.connect()
    harness.deliver(connection, 1, None)
    await asyncio.sleep(100)
    assert harness.durability.heads_asked == []


async def test_a_probe_asks_for_a_chat_once_however_many_watch_it(harness: GatewayHarness) -> None:
    await harness.synced([1])
    other, _ = await harness.connect("device_2")
    await ask(other, a_sync(0))
    await asyncio.sleep(31)
    assert harness.durability.heads_asked == [[CHAT]]


class _Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def head(self, chat_id: str, sequence: int) -> None:
        self.heard.append((chat_id, sequence))


async def test_a_probe_asks_in_bounded_portions_and_a_failed_one_does_not_stop_the_others() -> None:
    durability, ear = FakeDurability(), _Ear()
    probe = HeadProbe(durability, GatewayObserver())
    for number in range(limits.PROBE_CHATS_MAX * 2 + 1):
        durability.chats[f"chat_{number}"] = [number + 1]
        probe.watch(f"chat_{number}", ear)
    durability.failures = [OutcomeUnknown("away")]
    await probe.probe()
    assert [len(chats) for chats in durability.heads_asked] == [limits.PROBE_CHATS_MAX, limits.PROBE_CHATS_MAX, 1]
    assert len(ear.heard) == limits.PROBE_CHATS_MAX + 1


async def test_a_watcher_that_stops_gets_no_further_calls() -> None:
    durability, ear, other = FakeDurability(), _Ear(), _Ear()
    durability.chats[CHAT] = [1]
    probe = HeadProbe(durability, GatewayObserver())
    probe.watch(CHAT, ear)
    probe.watch(CHAT, other)
    probe.unwatch(CHAT, ear)
    await probe.probe()
    assert (ear.heard, other.heard) == ([], [(CHAT, 1)])
    probe.unwatch(CHAT, other)
    probe.unwatch(CHAT, other)
    await probe.probe()
    assert len(durability.heads_asked) == 1
