"""What an operator does without REST: by a socket in the data folder while the server runs, directly otherwise.

A user who may open the socket may read the data folder anyway: the rights of the file system are the check.
"""

import http.client
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from seriatim.domain import ids, limits
from seriatim.domain.account import User, is_display_name, is_phone_number
from seriatim.domain.errors import BadRequest, ValidationFailed
from seriatim.domain.times import iso
from seriatim.ports.accounts import Accounts
from seriatim.ports.clock import Clock
from seriatim.runtime.server.plain_app import Handler, PlainResponse
from seriatim.services.sign_in import SignInService

SOCKET = "operator.sock"
SOCKET_PATH_BYTES_MAX = 103  # of the address of a Unix socket, on the systems that allow least
ASK_TIMEOUT_S = 15.0  # a running server that is this slow needs another kind of help
T = TypeVar("T")


class AddUserRequest(msgspec.Struct, frozen=True, kw_only=True):
    phone_number: str
    display_name: str
    with_token: bool = False


class AddUserResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`created` is false when the phone number already had a user, who is left as they are."""

    user_id: str
    created: bool
    access_token: str | None = None
    device_id: str | None = None


class Operator:
    def __init__(self, accounts: Accounts, sign_in: SignInService, clock: Clock) -> None:
        self._accounts = accounts
        self._sign_in = sign_in
        self._clock = clock

    def routes(self) -> Mapping[tuple[str, str], Handler]:
        return {("POST", "/users"): self._post_user}

    async def add_user(self, request: AddUserRequest) -> AddUserResponse:
        """Raises `ValidationFailed`. With a token comes a session of its own, for a device id made here."""
        check_user(request)
        now = iso(self._clock.now_ms())
        user = User(
            user_id=ids.USER + ids.new_ulid(self._clock.now_ms(), self._clock.random_bits),
            phone_number=request.phone_number,
            display_name=request.display_name,
            created_at=now,
            updated_at=now,
        )
        user_id = await self._accounts.add_user(user, timeout_s=limits.API_TIMEOUT_S)
        created = user_id == user.user_id
        if not request.with_token:
            return AddUserResponse(user_id=user_id, created=created)
        # The refresh token is given to no client: an operator who needs longer asks for another access token.
        session = await self._sign_in.open_session(user_id, ids.new_uuid4(self._clock.random_bits))
        token = self._sign_in.access_token(session)
        return AddUserResponse(user_id=user_id, created=created, access_token=token, device_id=session.device_id)

    async def _post_user(self, body: bytes) -> PlainResponse:
        return PlainResponse(msgspec.json.encode(await self.add_user(parse_request(body, AddUserRequest))))


def check_user(request: AddUserRequest) -> None:
    if not is_phone_number(request.phone_number):
        raise ValidationFailed(
            "a phone number is written like +4915112345678", field="phone_number", field_code="INVALID_FORMAT"
        )
    if not is_display_name(request.display_name):
        raise ValidationFailed(
            f"a name has 1 to {limits.DISPLAY_NAME_CHARS_MAX} characters, no control characters, "
            "and no space at its ends",
            field="display_name",
            field_code="INVALID_FORMAT",
        )


def parse_request(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"this is no request for this path: {error}") from error


# --- the socket -------------------------------------------------------------------------------------------------------


def bind_socket(folder: Path) -> socket.socket:
    """The folder's lock is held, so a socket that is there was left by a server that died. Raises `OSError`."""
    path = folder / SOCKET
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise OSError("the path of the data folder is too long for a socket in it")
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
        os.chmod(path, 0o600)  # before it listens no client can connect, so there is no moment in between
    except OSError:
        bound.close()
        raise
    return bound


class NoServerRunning(Exception):
    """No server listens in this folder."""


class ServerRefused(Exception):
    """The server answered, and would not. The text says why."""


def ask(folder: Path, path: str, request: msgspec.Struct, answer: type[T], *, timeout_s: float = ASK_TIMEOUT_S) -> T:
    """Sends a request to the server on this folder. Raises `NoServerRunning`, `ServerRefused`, or `OSError` if it is
    stuck.
    """
    if len(os.fsencode(folder / SOCKET)) > SOCKET_PATH_BYTES_MAX:
        raise NoServerRunning  # then no server could make one either
    connection = _UnixConnection(folder / SOCKET, timeout_s)
    try:
        connection.request("POST", path, msgspec.json.encode(request), {"Content-Type": "application/json"})
        response = connection.getresponse()
        status, body = response.status, response.read()
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NoServerRunning from error
    except http.client.HTTPException as error:
        raise ServerRefused("the server hung up; see its log") from error
    finally:
        connection.close()
    if status != 200:
        raise ServerRefused(_message(body))
    return msgspec.json.decode(body, type=answer)


def _message(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Refusal).error.message
    except msgspec.MsgspecError:
        return "the server met a bug; see its log"


class _Reason(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Reason


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("operator", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
