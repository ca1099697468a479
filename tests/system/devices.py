"""A device that remembers what it was sent, what was acknowledged to it, and what is not acknowledged yet.

It checks everything: whatever contradicts the promises of the protocol is kept in `faults`, which tests find empty.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.system.users import ANSWER_S, User

Json = dict[str, Any]
SAME = ("message_id", "chat_id", "sequence", "sender_id", "client_message_id", "content", "content_type", "created_at")


class Lost(Exception):
    """The connection ended before the answer came: the outcome of the request is unknown."""


class Refused(Exception):
    def __init__(self, error: Json) -> None:
        super().__init__(error["code"])
        self.error = error


class Device:
    """`unacked`: by chat, texts by their ids, in the order in which they were written; an ack takes one out."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.faults: list[str] = []
        self.acks: dict[str, Json] = {}  # by client_message_id
        self.unacked: dict[str, dict[str, str]] = {}
        self.closing: Json | None = None
        self.close_code: int | None = None
        self.arrived = asyncio.Event()  # set whenever a message or an ack has come
        self._asked: dict[str, str] = {}  # chats by client_message_id: of all that was ever sent from here
        self._messages: dict[str, dict[int, Json]] = {}
        self._places: dict[tuple[str, str], tuple[int, str]] = {}  # by chat and client_message_id
        self._cursors: dict[str, int] = {}
        self._synced: dict[str, bool] = {}
        self._waiting: dict[str, asyncio.Future[Json]] = {}
        self._ignores_incoming = False
        self._socket: ClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None

    # --- the connection -----------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Raises `Lost` when no server answers."""
        server, token = self.user.gateway or self.user.server, self.user.access_token
        try:
            self._socket = await connect(
                f"ws://{server.host}:{server.port}/v1/ws",
                additional_headers={"Authorization": f"Bearer {token}"},
                compression=None,
                open_timeout=ANSWER_S,
                close_timeout=ANSWER_S,
                ping_interval=None,
                max_queue=None,
                proxy=None,
            )
        except (OSError, InvalidHandshake, EOFError) as error:
            raise Lost(str(error)) from error
        self._synced.clear()
        self._ignores_incoming = False
        self.closing = self.close_code = None
        greeted = self._wait_for("greeting")
        self._reading = asyncio.create_task(self._read(self._socket))
        await greeted

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        await self.wait_closed()

    def ignore_incoming(self) -> None:
        """From this moment on nothing reaches this device, though the server may still write to it."""
        self._ignores_incoming = True

    async def wait_closed(self) -> None:
        """Returns when the connection has ended, whichever side ended it."""
        if self._reading is not None:
            await self._reading

    # --- what a device does -------------------------------------------------------------------------------------------

    async def send(self, chat_id: str, content: str) -> Json:
        """Returns the ack. Raises `Refused` or `Lost`; then the text is still unacked."""
        key = str(uuid.uuid4())
        self.unacked.setdefault(chat_id, {})[key] = content
        return await self._transmit(chat_id, key, content)

    async def resend(self, chat_id: str) -> None:
        """Sends again what is unacked, with the same ids, in order."""
        for key, content in list(self.unacked.get(chat_id, {}).items()):
            await self._transmit(chat_id, key, content)

    async def sync(self, chat_id: str) -> None:
        """From the own cursor to the end."""
        while True:
            after = self._cursors.get(chat_id, 0)
            frame = {"type": "sync_request", "chat_id": chat_id, "last_acked_sequence": after, "limit": 500}
            batch = await self._ask(f"sync {chat_id}", frame)
            for message in batch["messages"]:
                self._keep(message, pushed=False)
            if not batch["has_more"]:
                self._synced[chat_id] = True
                return
            self._cursors[chat_id] = max(self._cursors.get(chat_id, 0), batch["next_sequence"] - 1)

    def post(self, frame: Json) -> Awaitable[None]:
        assert self._socket is not None
        if frame["type"] == "send_message":
            self._asked[frame["client_message_id"]] = frame["chat_id"]
        return self._socket.send(msgspec.json.encode(frame).decode())

    def chats(self) -> list[str]:
        """Of which it has messages."""
        return list(self._messages)

    def messages(self, chat_id: str) -> list[Json]:
        """What this device would show: by sequence, its own included."""
        found = self._messages.get(chat_id, {})
        return [found[sequence] for sequence in sorted(found)]

    async def has(self, count: int, chat_id: str) -> None:
        """Returns once there are so many messages."""
        await self.until(lambda: len(self._messages.get(chat_id, {})) >= count)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(2 * ANSWER_S):
            while not condition():
                self.arrived.clear()
                await self.arrived.wait()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self, socket: ClientConnection) -> None:
        try:
            while True:
                self._received(msgspec.json.decode(await socket.recv(decode=False)))
        except ConnectionClosed as end:
            self.close_code = None if end.rcvd is None else end.rcvd.code
        finally:
            waiting, self._waiting = self._waiting, {}
            for future in waiting.values():
                if not future.done():
                    future.set_exception(Lost("the connection ended"))
                    future.exception()  # the caller may have ended, too
            self.arrived.set()

    def _received(self, frame: Json) -> None:
        if self._ignores_incoming:
            return
        match frame["type"]:
            case "connection_established":
                self._answer("greeting", frame)
            case "message":
                self._keep(frame, pushed=True)
            case "message_ack":
                self._acked(frame)
            case "message_batch":
                self._answer(f"sync {frame['chat_id']}", frame)
            case "connection_closing":
                self.closing = frame
            case "error":
                self._refused(frame)
            case other:
                self.faults.append(f"an unexpected frame: {other}")

    def _acked(self, ack: Json) -> None:
        key, chat_id = ack["client_message_id"], ack["chat_id"]
        if self._asked.get(key) != chat_id:
            self.faults.append(f"an ack that nobody asked for: {ack}")
        self._place(ack)
        content = self.unacked.get(chat_id, {}).pop(key, None)
        if content is not None:
            self.acks[key] = ack
            own = {**ack, "sender_id": self.user.user_id, "content": content, "content_type": "text/plain"}
            self._compare(chat_id, own)
        self._answer(key, ack)

    def _keep(self, message: Json, *, pushed: bool) -> None:
        chat_id, sequence = message["chat_id"], message["sequence"]
        self._place(message)
        if self._synced.get(chat_id) or not pushed:  # until then a push says nothing about those before it
            if sequence <= self._cursors.get(chat_id, 0):
                self.faults.append(f"{sequence} of {chat_id} came after {self._cursors[chat_id]}, pushed: {pushed}")
            self._cursors[chat_id] = sequence
        if message["sender_id"] == self.user.user_id:
            # As good as an ack: a retry would only be seen the same.
            self.unacked.get(chat_id, {}).pop(message["client_message_id"], None)
        self._compare(chat_id, message)

    def _place(self, seen: Json) -> None:
        """A message has one place and one id, in every frame: an ack, a repeated one, a push or a sync."""
        place = (seen["sequence"], seen["message_id"])
        known = self._places.setdefault((seen["chat_id"], seen["client_message_id"]), place)
        if known != place:
            self.faults.append(f"one message in two places: {known} and {place}, {seen}")

    def _compare(self, chat_id: str, message: Json) -> None:
        """The same position always holds the same message."""
        kept = {name: message[name] for name in SAME}
        known = self._messages.setdefault(chat_id, {}).setdefault(message["sequence"], kept)
        if known != kept:
            self.faults.append(f"two messages in one place: {known} and {kept}")
        self.arrived.set()

    def _refused(self, error: Json) -> None:
        chat_id = error.get("chat_id")
        for question in (error.get("client_message_id"), f"sync {chat_id}"):
            future = self._waiting.pop(question, None) if question else None
            if future is not None:
                future.set_exception(Refused(error))
                future.exception()
                return
        self.faults.append(f"an error that nobody asked for: {error}")

    # --- asking -------------------------------------------------------------------------------------------------------

    async def _transmit(self, chat_id: str, key: str, content: str) -> Json:
        frame = {"type": "send_message", "chat_id": chat_id, "client_message_id": key, "content": content}
        return await self._ask(key, frame)

    async def _ask(self, question: str, frame: Json) -> Json:
        future = self._wait_for(question)
        try:
            await self.post(frame)
        except ConnectionClosed:
            self._waiting.pop(question, None)
            raise Lost("the connection has ended") from None
        return await asyncio.wait_for(future, 2 * ANSWER_S)

    def _wait_for(self, question: str) -> asyncio.Future[Json]:
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[question] = future
        return future

    def _answer(self, question: str, frame: Json) -> None:
        future = self._waiting.pop(question, None)
        if future is not None and not future.done():
            future.set_result(frame)


def same(message: Json) -> Json:
    """What REST and WebSocket agree about."""
    return {name: message[name] for name in SAME}


async def signed_in(make: Callable[[int], User], count: int) -> list[User]:
    """So many users, a few at a time, without blocking the event loop."""
    gate = asyncio.Semaphore(8)

    async def one(number: int) -> User:
        async with gate:
            return await asyncio.to_thread(make, number)

    return await asyncio.gather(*map(one, range(count)))


def faults(devices: Sequence[Device]) -> list[str]:
    return [fault for device in devices for fault in device.faults]
