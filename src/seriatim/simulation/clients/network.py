"""How devices reach servers: a socket to some gateway, a REST call to the api process. Both may fail."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from seriatim.connection.socket import ClientIdentity
from seriatim.domain.errors import SeriatimError
from seriatim.simulation.checks.history import WorldHistory
from seriatim.simulation.checks.slow_consumers import SlowConsumerCheck
from seriatim.simulation.clients.device import Device
from seriatim.simulation.clients.socket import ClientSide, SimulatedSocket
from seriatim.simulation.cluster import ApiServer, GatewayServer
from seriatim.simulation.faults.plan import Faults
from seriatim.simulation.faults.profiles import WireKind
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import Process
from seriatim.simulation.stores.catalog import MemoryCatalog

CONNECT_PATIENCE_S = 2.0
TOKEN_S = 3600


class NetworkClient(ClientSide, Protocol):
    """A client that can open a connection."""

    @property
    def name(self) -> str: ...

    @property
    def user_id(self) -> str: ...

    @property
    def device_id(self) -> str: ...

    @property
    def process(self) -> Process: ...

    def socket_opened(self, socket: SimulatedSocket) -> None: ...

    def refused(self) -> None: ...


class Network:
    """Knows where the servers are."""

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        faults: Faults,
        gateways: Sequence[GatewayServer],
        api: ApiServer,
        history: WorldHistory,
    ) -> None:
        self._history = history
        self._loop = loop
        self._random = random
        self._faults = faults
        self._gateways = gateways
        self._api = api

    # --- sockets ----------------------------------------------------------------------------------------------------

    def dial(self, device: NetworkClient) -> None:
        """A load balancer picks a gateway; a dead one refuses."""
        server = self._gateways[int(self._random.random() * len(self._gateways))]
        delay = self._faults.delay(WireKind.PUSH) * 2
        self._loop.call_later(delay, self._arrive, device, device.process, server, context=self._loop.world.context)

    def _arrive(self, device: NetworkClient, life: Process, server: GatewayServer) -> None:
        process, gateway = server.process, server.gateway
        if life is not device.process or not life.alive:
            return
        if process is None or not process.alive or process.paused or gateway is None:
            life.call_soon(device.refused)
            return
        socket = SimulatedSocket(process, life, device, self._faults)
        socket.slow_consumer_check = SlowConsumerCheck(socket, process, device.name, self._history)
        expires_at_ms = process.clock.now_ms() + TOKEN_S * 1000
        identity = ClientIdentity(
            user_id=device.user_id,
            device_id=device.device_id,
            session_id=f"sess_{device.name}",
            token_expires_at_ms=expires_at_ms,
        )
        try:
            connection = process.run(gateway.accept, socket, identity)
        except SeriatimError:
            life.call_soon(device.refused)
            return
        life.call_soon(device.socket_opened, socket)
        server.sockets.append(socket)
        socket.accepted(connection)
        process.start(gateway.establish(connection))

    # --- REST -------------------------------------------------------------------------------------------------------

    def list_chats(self, device: Device) -> None:
        delay = self._faults.delay(WireKind.RPC)
        self._loop.call_later(delay, self._list, device, device.process, context=self._loop.world.context)

    def _list(self, device: Device, life: Process) -> None:
        process, catalog = self._api.process, self._api.catalog
        if process is None or not process.alive or catalog is None:
            life.call_soon(device.chats_listed, None)
            return
        answered = [False]

        def answer(chat_ids: list[str] | None) -> None:
            if not answered[0] and life is device.process:
                answered[0] = True
                life.call_later(self._faults.delay(WireKind.RPC), device.chats_listed, chat_ids)

        process.start(self._chats_of(catalog, device.user_id, answer))
        life.call_later(CONNECT_PATIENCE_S, answer, None)

    async def _chats_of(self, catalog: MemoryCatalog, user_id: str, answer: Callable[[list[str] | None], None]) -> None:
        try:
            answer(list(await catalog.chats_of(user_id, timeout_s=1.0)))
        except SeriatimError:
            answer(None)
