"""A client that does not wait for acks: sends of one chat in flight on one connection must keep their order."""

from collections.abc import Callable
from random import Random

from seriatim.protocol.codec import decode_server_frame, encode
from seriatim.protocol.frames import ConnectionEstablished, MessageAck, SendMessage
from seriatim.simulation.checks.history import WorldHistory
from seriatim.simulation.clients.socket import SimulatedSocket
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import Process

SENDS = 5


class PipeliningClient:
    """Connects once and sends everything at once. It neither reconnects nor stores anything."""

    def __init__(
        self,
        loop: SimulatedLoop,
        user_id: str,
        chat_id: str,
        *,
        random: Random,
        history: WorldHistory,
        dial: Callable[["PipeliningClient"], None],
    ) -> None:
        self.name = "pipelining"
        self.user_id = user_id
        self.device_id = "pipelining"
        self.process = Process(loop, self.name, random=random)
        self.socket: SimulatedSocket | None = None
        self.sent: list[str] = []
        self._chat_id = chat_id
        self._random = random
        self._history = history
        self._dial = dial
        self._acked: dict[str, int] = {}

    def start(self) -> None:
        self._dial(self)

    def socket_opened(self, socket: SimulatedSocket) -> None:
        self.socket = socket

    def refused(self) -> None:
        """It does not try again."""

    def frame_arrived(self, socket: SimulatedSocket, frame: bytes) -> None:
        match decode_server_frame(frame):
            case ConnectionEstablished():
                for number in range(SENDS):
                    self._send(socket, f"pipelined {number}")
            case MessageAck(client_message_id=client_message_id, sequence=sequence, deduplicated=False):
                self._acked[client_message_id] = sequence
                self._check()
            case _:
                pass

    def socket_closed(self, socket: SimulatedSocket) -> None:
        self.socket = None

    def _send(self, socket: SimulatedSocket, content: str) -> None:
        text = f"{self._random.getrandbits(128):032x}"
        client_message_id = f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"
        self.sent.append(client_message_id)
        socket.send(encode(SendMessage(client_message_id=client_message_id, chat_id=self._chat_id, content=content)))

    def _check(self) -> None:
        """An earlier send may fail; one that succeeds never gets a higher sequence than a later one."""
        sequences = [self._acked[each] for each in self.sent if each in self._acked]
        if sequences != sorted(sequences):
            self._history.violate(
                "senders_order", f"one connection's sends to {self._chat_id} were placed as {sequences}"
            )
