"""Users of a running server over REST and WebSocket, step by step, with no code of the product in between."""

import http.client
import json
import uuid
from typing import Any, Protocol

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

Json = dict[str, Any]
ANSWER_S = 30.0  # far more than an answer takes, even on a machine that does much else


class Endpoint(Protocol):
    """Where a server listens."""

    host: str
    port: int


class Reply:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.text = response.read().decode()

    @property
    def json(self) -> Json:
        found = json.loads(self.text)
        assert isinstance(found, dict)
        return found

    @property
    def data(self) -> Any:
        assert self.status < 300, self.text
        return self.json["data"]


def request(server: Endpoint, method: str, path: str, body: object = None, *, port: int = 0, **headers: str) -> Reply:
    """One request on a connection of its own. `X_Device_ID="..."` is the header X-Device-ID."""
    connection = http.client.HTTPConnection(server.host, port or server.port, timeout=ANSWER_S)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        named["Content-Type"] = "application/json"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), named)
        return Reply(connection.getresponse())
    finally:
        connection.close()


class User:
    """Signed in with one device. `gateway`: where its WebSockets go, if not to the server that speaks REST."""

    def __init__(
        self,
        server: Endpoint,
        phone_number: str,
        *,
        otp: str | None = None,
        device_id: str | None = None,
        gateway: Endpoint | None = None,
    ) -> None:
        self.server = server
        self.gateway = gateway
        self.phone_number = phone_number
        self.device_id = device_id or str(uuid.uuid4())
        if otp is None:
            request(server, "POST", "/api/v1/auth/request-otp", {"phone_number": phone_number})
        body = {"phone_number": phone_number, "otp": otp or "000000", "device_id": self.device_id}
        signed_in = request(server, "POST", "/api/v1/auth/verify-otp", body, X_Device_ID=self.device_id).data
        self.user_id: str = signed_in["user"]["user_id"]
        self.session_id: str = signed_in["session"]["session_id"]
        self.access_token: str = signed_in["tokens"]["access_token"]
        self.refresh_token: str = signed_in["tokens"]["refresh_token"]

    def call(self, method: str, path: str, body: object = None) -> Reply:
        return request(self.server, method, f"/api/v1{path}", body, Authorization=f"Bearer {self.access_token}")

    def create_group(self, *others: "User", name: str = "us") -> str:
        body = {"type": "group", "name": name, "member_ids": [other.user_id for other in others]}
        chat_id = self.call("POST", "/chats", body).data["chat_id"]
        assert isinstance(chat_id, str)
        return chat_id

    def history(self, chat_id: str) -> list[Json]:
        """All of it, oldest first, page by page."""
        found: list[Json] = []
        path = f"/chats/{chat_id}/messages?direction=forward&limit=100"
        while True:
            reply = self.call("GET", path)
            found += reply.data
            if not reply.json["pagination"]["has_more"]:
                return found
            path = f"/chats/{chat_id}/messages?cursor={reply.json['pagination']['next_cursor']}"

    def connect(self) -> "WebSocketClient":
        return WebSocketClient(self.gateway or self.server, self.access_token)


class WebSocketClient:
    """A WebSocket, greeted once it is entered."""

    def __init__(self, server: Endpoint, token: str) -> None:
        self._opening = connect(
            f"ws://{server.host}:{server.port}/v1/ws",
            additional_headers={"Authorization": f"Bearer {token}"},
            open_timeout=ANSWER_S,
            close_timeout=ANSWER_S,
            proxy=None,
        )
        self.socket: ClientConnection
        self.greeting: Json = {}

    def __enter__(self) -> "WebSocketClient":
        self.socket = self._opening.__enter__()
        self.greeting = self.receive("connection_established")
        return self

    def __exit__(self, *reason: Any) -> None:
        self._opening.__exit__(*reason)

    def post(self, frame_type: str, **fields: object) -> None:
        self.socket.send(json.dumps({"type": frame_type, **fields}))

    def post_send(self, chat_id: str, content: str, **fields: object) -> str:
        """Returns the id that the answer will name."""
        client_message_id = str(uuid.uuid4())
        self.post("send_message", chat_id=chat_id, client_message_id=client_message_id, content=content, **fields)
        return client_message_id

    def send(self, chat_id: str, content: str) -> Json:
        """Returns the ack."""
        self.post_send(chat_id, content)
        return self.receive("message_ack")

    def error(self) -> Json:
        """The next frame, which is an error."""
        return self.receive("error")

    def is_usable(self) -> bool:
        """Nothing else waits to be read, and the server answers."""
        self.post("heartbeat", request_id="still-there")
        return bool(self.receive("heartbeat_ack")["request_id"] == "still-there")

    def closing(self) -> tuple[Json, int]:
        """The next frame, which is the last one, and the code of the close."""
        frame = self.receive("connection_closing")
        code, reason = self.end()
        assert reason == frame["reason"]
        return frame, code

    def end(self) -> tuple[int, str]:
        """Nothing comes any more but the close: its code and reason."""
        with pytest.raises(ConnectionClosed) as closed:
            self.socket.recv(timeout=ANSWER_S)
        assert closed.value.rcvd is not None
        return closed.value.rcvd.code, closed.value.rcvd.reason

    def sync(self, chat_id: str, after: int = 0) -> Json:
        self.post("sync_request", chat_id=chat_id, last_acked_sequence=after)
        return self.receive("message_batch")

    def receive(self, frame_type: str) -> Json:
        """The next frame, which is of this type."""
        frame = json.loads(self.socket.recv(timeout=ANSWER_S))
        assert isinstance(frame, dict)
        assert frame["type"] == frame_type, frame
        return frame
