"""A whole server in one process, fed with real frames and without sockets, until so many messages are acknowledged.

Run under valgrind by `bench.instructions`. It ends in the middle of everything: what it leaves behind is not looked at.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from bench.child import LIFTED, lift
from bench.clients import frame_head, send_frames
from bench.people import People

CONTENT_BYTES = 100
CLIENT_S = 3600


class CountedConnections:
    """Whose answers came: they send again at the next turn, as many as were acknowledged."""

    def __init__(self) -> None:
        self.acks = 0
        self.due: list[tuple[CountedConnection, int]] = []
        self._news: asyncio.Future[None] | None = None

    def acknowledged(self, line: "CountedConnection", count: int) -> None:
        self.acks += count
        self.due.append((line, count))
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def run(self, messages: int) -> None:
        while self.acks < messages:
            if not self.due:
                self._news = asyncio.get_running_loop().create_future()
                await self._news
            due, self.due = self.due, []
            for line, count in due:
                line.send(count)
            await asyncio.sleep(0)


class CountedConnection:
    """A transport that takes everything and keeps nothing, with a client at its end."""

    def __init__(self, lines: CountedConnections, chat_id: str) -> None:
        self._lines = lines
        self._number = 0
        self.socket: asyncio.Protocol
        _, self._template = send_frames(chat_id, CONTENT_BYTES)

    def send(self, count: int) -> None:
        for _ in range(count):
            self._number += 1
            self.socket.data_received(self._template % self._number)

    def write(self, data: bytes) -> None:
        if count := data.count(b'"message_ack"'):
            self._lines.acknowledged(self, count)

    def get_write_buffer_size(self) -> int:
        return 0


async def counted(data: Path, people: People, *, connections: int, chat: int, depth: int, messages: int) -> None:
    # Here, since limits are lifted before anything of the server is imported.
    from cryptography.hazmat.primitives import serialization

    from seriatim.connection.listener.ws_socket import WebSocket
    from seriatim.connection.socket import ClientIdentity
    from seriatim.engines.keys import key_folder
    from seriatim.runtime.config.settings import Settings
    from seriatim.runtime.wiring.assemble import assemble

    # Whether a key is sound is found out by chance, at the price of a thousand messages more or less.
    sound = partial(serialization.load_pem_private_key, unsafe_skip_rsa_key_validation=True)
    key_folder.load_pem_private_key = sound  # type: ignore[attr-defined]
    settings = Settings(env="test", port=0, internal="127.0.0.1:0", data=str(data), log_format="json")
    server = await assemble(settings, instance="counted")
    await server.start()
    gateway, listener = server.roles.gateway, server._listeners.public
    assert gateway is not None
    assert listener is not None
    chats = people.pairs if chat == 2 else people.tens
    expires_at_ms = int(time.time() + CLIENT_S) * 1000
    lines, everybody = CountedConnections(), list[CountedConnection]()
    for number in range(connections):
        chat_id = chats[number // chat]
        line = CountedConnection(lines, chat_id)
        socket = line.socket = WebSocket(cast(asyncio.Transport, line), listener._state, full=False)
        user_id = people.persons[number].user_id
        identity = ClientIdentity(
            user_id=user_id, device_id=f"device_{number}", session_id="sess_bench", token_expires_at_ms=expires_at_ms
        )
        socket.attach(await gateway.open(socket, identity), b"")
        request = {"type": "sync_request", "chat_id": chat_id, "last_acked_sequence": 2**53 - 1}
        text = msgspec.json.encode(request)
        socket.data_received(frame_head(len(text)) + text)
        everybody.append(line)
    await asyncio.sleep(1)  # until all of them are synced
    for line in everybody:
        line.send(depth)
    await lines.run(messages)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--people", type=Path, required=True)
    for name in ("connections", "chat", "depth", "messages"):
        parser.add_argument(f"--{name}", type=int, required=True)
    asked = parser.parse_args(given)
    lift(LIFTED)
    people = msgspec.json.decode(asked.people.read_bytes(), type=People)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(
            counted(
                asked.data,
                people,
                connections=asked.connections,
                chat=asked.chat,
                depth=asked.depth,
                messages=asked.messages,
            )
        )
        os._exit(0)


if __name__ == "__main__":
    main()
