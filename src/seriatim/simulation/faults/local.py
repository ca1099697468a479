"""Worlds in which one part fails and nothing else: one ingest process, one chat, or one row.

Many clients write to the chat that depends on it. Sends to the other chats must not be refused.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING

from msgspec import UnsetType

from seriatim.domain.errors import InternalError, OutcomeUnknown
from seriatim.domain.sharding import bucket, owner
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.message_log import Lookup
from seriatim.protocol.codec import decode_server_frame, encode
from seriatim.protocol.frames import ConnectionEstablished, ErrorFrame, SendMessage
from seriatim.simulation.clients.socket import SimulatedSocket
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import Process
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore

if TYPE_CHECKING:
    from seriatim.simulation.cluster import Server
    from seriatim.simulation.world import World

INGESTS = 2
CHATS = 4
BEGINS_S = 3.0
WRITES_UNTIL_S = 26.0  # beyond the end of the fault: what it left behind shows then
MANY = 3  # connections that write to the chat that depends on what fails, each with this pause between its sends
MANY_PACE_S = 0.4
CALM_PACES_S = (0.6, 2.5)  # of a writer of another chat: seldom enough for failures to follow each other undisturbed
RETRY_S = 1.0  # the longest wait that a chat of the ingest that fails is asked for: there is another ingest
ONE_MESSAGE_ITEMS = 3  # a key, a slot, a member
SLOW_LOOKUP_S = 0.9  # almost the time that a store call has
RESETS = 0.9  # of the lookups of a chat whose part of the store is bad: most fail twice in a row


class LocalFault(StrEnum):
    CRASHES = "an ingest crashes again and again"
    FREEZES = "an ingest freezes"
    ANSWERS_NOTHING = "an ingest answers no send"
    OVERLOADED = "a chat has more writers than it can take"
    RESETS = "store calls of a chat are reset"
    UNREADABLE = "a row of a chat cannot be read"

    @property
    def of_an_ingest(self) -> bool:
        return self in (LocalFault.CRASHES, LocalFault.FREEZES, LocalFault.ANSWERS_NOTHING)


class LocalFaultPlan:
    """The fault of one world, the chats that depend on it, and the writers."""

    def __init__(self, world: "World") -> None:
        random = world.random
        kinds = list(LocalFault)
        self.kind = kinds[int(random.random() * len(kinds))]
        self.chat_id = world.chats[0]
        self._world = world
        self._names = [node.name for node in world.deployment.ingest_nodes]
        self._node = next(node for node in world.deployment.ingest_nodes if node.name == self._owner(self.chat_id))
        self._pace_s = CALM_PACES_S[0] + (CALM_PACES_S[1] - CALM_PACES_S[0]) * random.random()

    def plan(self) -> None:
        world = self._world
        for number in range(MANY):
            self._writer(f"many{number}", self.chat_id, MANY_PACE_S)
        for number, chat_id in enumerate(world.chats[1:]):
            self._writer(f"calm{number}", chat_id, self._pace_s)
        world.at(BEGINS_S, self._begin)

    def depends(self, chat_id: str) -> bool:
        return self._owner(chat_id) == self._node.name if self.kind.of_an_ingest else chat_id == self.chat_id

    def refused(self, chat_id: str, code: str, wait_s: float) -> None:
        """A send of a writer ended so; `wait_s` is what it was asked to wait."""
        world = self._world
        if not self.depends(chat_id):
            world.history.violate("faults_stay_local", f"a send to {chat_id} was refused, {code}: {self.kind}")
        elif self.kind.of_an_ingest and wait_s > RETRY_S:
            text = f"{chat_id} was refused for {wait_s:g} s, {code}: {self.kind}, and another one was there"
            world.history.violate("faults_stay_local", text)

    def _owner(self, chat_id: str) -> str:
        return owner(bucket(chat_id), self._names)

    def _writer(self, name: str, chat_id: str, pace_s: float) -> None:
        world = self._world
        user_id = world.users[0]
        writer = ChatWriter(world.loop, name, user_id, chat_id, pace_s, world.random, world.network.dial, self.refused)
        world.at(1.0 + world.random.random() / 2, writer.process.run, writer.start)

    # --- what fails ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        world = self._world
        world.faults.count(self.kind.value)
        world.deployment.note("world", f"{self.kind}: {self._node.name}, {self.chat_id}")
        if self.kind is LocalFault.CRASHES:
            self._crash(self._server())
        elif self.kind is LocalFault.FREEZES:
            self._freeze(self._server().process)
        elif self.kind is LocalFault.ANSWERS_NOTHING:
            self._node.answers_nothing = True
        else:
            world.deployment.faulty_chat = self.chat_id, self.kind

    def end(self) -> None:
        self._node.answers_nothing = False
        self._world.deployment.faulty_chat = None

    def _server(self) -> "Server":
        return next(server for server in self._world.servers if server.name == self._node.name)

    def _crash(self, server: "Server") -> None:
        world = self._world
        if world.faults.active:
            server.crash()
            world.at(world.loop.time() + 0.3, server.start)
            world.at(world.loop.time() + 1.0 + world.random.random(), self._crash, server)

    def _freeze(self, process: Process | None) -> None:
        world = self._world
        if process is not None and process.alive:
            process.pause()
            world.at(world.loop.time() + 2.0 + 7.0 * world.random.random(), self._thaw, process)

    def _thaw(self, process: Process) -> None:
        if process.alive and process.paused:
            process.resume()


class FaultyChatLog(MemoryMessageLog):
    """The message log of a world in which the lookups of one chat go wrong."""

    def __init__(self, store: MemoryStore, wire: Wire, random: Random, bad: "Callable[[], FaultyChat | None]") -> None:
        super().__init__(store, wire)
        self._random = random
        self._faulty_chat = bad

    @property
    def transaction_items_max(self) -> int:
        """An overloaded chat stores one message at a time."""
        bad = self._faulty_chat()
        return (
            ONE_MESSAGE_ITEMS if bad is not None and bad[1] is LocalFault.OVERLOADED else super().transaction_items_max
        )

    async def lookup(
        self, chat_id: str, client_message_ids: Sequence[str], user_ids: Sequence[str], *, timeout_s: float
    ) -> Lookup:
        bad = self._faulty_chat()
        if bad is not None and bad[0] == chat_id:
            if bad[1] is LocalFault.UNREADABLE:
                raise InternalError("a row of the store is not what this release writes")
            if bad[1] is LocalFault.RESETS and self._random.random() < RESETS:
                raise OutcomeUnknown("lookup: connection reset")
            if bad[1] is LocalFault.OVERLOADED:
                await asyncio.sleep(min(SLOW_LOOKUP_S, timeout_s))
                if timeout_s <= SLOW_LOOKUP_S:
                    raise OutcomeUnknown("lookup: no answer in time")
        return await super().lookup(chat_id, client_message_ids, user_ids, timeout_s=timeout_s)


FaultyChat = tuple[str, LocalFault]


class ChatWriter:
    """Sends to one chat at a fixed pace, and reports refusals. It stores nothing."""

    def __init__(
        self,
        loop: SimulatedLoop,
        name: str,
        user_id: str,
        chat_id: str,
        pace_s: float,
        random: Random,
        dial: Callable[["ChatWriter"], None],
        refused: Callable[[str, str, float], None],
    ) -> None:
        self.name = self.device_id = name
        self.user_id = user_id
        self.process = Process(loop, name, random=random)
        self.socket: SimulatedSocket | None = None
        self._chat_id = chat_id
        self._pace_s = pace_s
        self._random = random
        self._dial = dial
        self._report = refused

    def start(self) -> None:
        self._dial(self)

    def socket_opened(self, socket: SimulatedSocket) -> None:
        self.socket = socket

    def refused(self) -> None:
        self.process.call_later(1.0, self.start)

    def frame_arrived(self, socket: SimulatedSocket, frame: bytes) -> None:
        match decode_server_frame(frame):
            case ConnectionEstablished():
                self._write()
            case ErrorFrame(code=code, client_message_id=str(), retry_after_seconds=wait_s):
                self._report(self._chat_id, code, 0.0 if isinstance(wait_s, UnsetType) else wait_s)
            case _:
                pass

    def socket_closed(self, socket: SimulatedSocket) -> None:
        self.socket = None

    def _write(self) -> None:
        if self.socket is None or self.process.clock.monotonic() > WRITES_UNTIL_S:
            return
        text = f"{self._random.getrandbits(128):032x}"
        client_message_id = f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"
        self.socket.send(encode(SendMessage(client_message_id=client_message_id, chat_id=self._chat_id, content=text)))
        self.process.call_later(self._pace_s * (0.5 + self._random.random()), self._write)
