"""The applications of the listeners that are not public: few paths, and a clear answer to everything else."""

from typing import Any

import msgspec
import pytest

from seriatim.domain import limits
from seriatim.domain.errors import Forbidden
from seriatim.runtime.server.plain_app import PlainApp, PlainResponse


async def _echo(body: bytes) -> PlainResponse:
    return PlainResponse(body, media_type="text/plain")


async def _refuse(body: bytes) -> PlainResponse:
    raise Forbidden("not today")


APP = PlainApp({("GET", "/echo"): _echo, ("POST", "/echo"): _echo, ("POST", "/closed"): _refuse})


async def _call(
    method: str, path: str, *pieces: bytes, gone: bool = False, app: PlainApp = APP
) -> tuple[int, dict[bytes, bytes], bytes]:
    events: list[dict[str, Any]] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    events.append({"type": "http.disconnect"} if gone else {"type": "http.request", "body": b""})
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return events.pop(0)

    async def send(event: Any) -> None:
        sent.append(event)

    await app({"type": "http", "method": method, "path": path}, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


async def test_security_h1_strangers_keep_no_connection_to_an_application_without_keep_alive() -> None:
    app = PlainApp({("GET", "/echo"): _echo}, keep_alive=False)
    for path in ("/echo", "/nowhere"):
        assert (await _call("GET", path, app=app))[1][b"connection"] == b"close"


async def test_a_body_that_comes_in_pieces_is_put_together() -> None:
    status, headers, body = await _call("POST", "/echo", b"good ", b"morning")
    assert (status, body) == (200, b"good morning")
    assert headers == {b"content-type": b"text/plain", b"content-length": b"12"}


async def test_head_is_get_without_the_body() -> None:
    status, headers, body = await _call("HEAD", "/echo", b"12345")
    assert (status, headers[b"content-length"], body) == (200, b"5", b"")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "NOT_FOUND"),
        ("DELETE", "/echo", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/closed", 403, "FORBIDDEN"),
    ],
)
async def test_a_refusal_has_the_shape_of_every_other_error(method: str, path: str, status: int, code: str) -> None:
    answered, _, body = await _call(method, path)
    assert answered == status
    assert msgspec.json.decode(body)["error"]["code"] == code


async def test_a_body_without_end_is_refused_once_it_is_too_large() -> None:
    assert (await _call("POST", "/echo", *[b"x" * 1024] * 65))[0] == 413
    assert (await _call("POST", "/echo", b"x" * limits.BODY_BYTES_MAX))[0] == 200


async def test_a_caller_who_hangs_up_is_not_worked_for() -> None:
    assert (await _call("POST", "/echo", b"half", gone=True))[0] == 400
