"""Who may not: outsiders, users who were removed, sessions that were revoked. By every route, and at once."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.handshake_client import try_handshake
from tests.system.server_process import ServerProcess, serving
from tests.system.users import Reply, User, WebSocketClient, request

Json = dict[str, Any]
NOWHERE = "chat_01M7H5SFE6V1M67NWMKD5BCNS1"
# Every documented route that names a chat, with a body that a member could send. `{me}` is the user who sends it.
ROUTES: dict[tuple[str, str], Json | None] = {
    ("GET", "/chats/{chat_id}"): None,
    ("PATCH", "/chats/{chat_id}"): {"name": "ours now"},
    ("GET", "/chats/{chat_id}/members"): None,
    ("POST", "/chats/{chat_id}/members"): {"user_id": "{me}"},
    ("PATCH", "/chats/{chat_id}/members/{user_id}"): {"role": "admin"},
    ("DELETE", "/chats/{chat_id}/members/{user_id}"): None,
    ("POST", "/chats/{chat_id}/leave"): None,
    ("POST", "/chats/{chat_id}/mute"): {"duration_hours": 1},
    ("POST", "/chats/{chat_id}/unmute"): None,
    ("GET", "/chats/{chat_id}/messages"): None,
    ("GET", "/chats/{chat_id}/messages/{message_id}"): None,
    ("GET", "/chats/{chat_id}/messages/around/{sequence}"): None,
    ("PATCH", "/delivery-state/{chat_id}"): {"last_acked_sequence": 1},
    ("PATCH", "/chats/{chat_id}/delivery-state"): {"last_acked_sequence": 1},
    ("GET", "/chats/{chat_id}/delivery-status"): None,
}
FRAMES: dict[str, Json] = {
    "send_message": {"client_message_id": str(uuid.uuid4()), "content": "let me in"},
    "sync_request": {"last_acked_sequence": 0},
    "ack": {"last_acked_sequence": 1},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("access") / "data") as running:
        yield running


class Club:
    """A group of two with one message in it, and a user who is not in it."""

    def __init__(self, server: ServerProcess) -> None:
        self.owner, self.member, self.outsider = (User(server, _new_phone()) for _ in range(3))
        self.chat_id = self.owner.create_group(self.member, name="club")
        with self.owner.connect() as websocket:
            self.message = websocket.send(self.chat_id, "between us")

    def call(self, who: User, route: tuple[str, str], chat_id: str | None = None) -> Reply:
        method, template = route
        path = template.format(
            chat_id=chat_id or self.chat_id,
            user_id=self.member.user_id,
            message_id=self.message["message_id"],
            sequence=self.message["sequence"],
        )
        body = ROUTES[route]
        if body is not None and body.get("user_id") == "{me}":
            body = {"user_id": who.user_id}
        return who.call(method, path, body)

    def seen_by_owner(self) -> list[object]:
        """All that a request could have changed."""
        paths = ("", "/members", "/messages", "/delivery-status")
        return [self.owner.call("GET", f"/chats/{self.chat_id}{path}").data for path in paths]


@pytest.fixture
def club(server: ServerProcess) -> Club:
    return Club(server)


_devices = iter(range(10_000_000))


def _new_phone() -> str:
    return f"+49151{next(_devices):08d}"


# --- outsiders --------------------------------------------------------------------------------------------------------


def test_the_routes_tried_here_are_all_documented_routes_that_name_a_chat(server: ServerProcess) -> None:
    paths = request(server, "GET", "/api/v1/openapi.json").json["paths"]
    documented = {
        (method.upper(), path.removeprefix("/api/v1"))
        for path, item in paths.items()
        for method in item
        if "{chat_id}" in path and method in ("get", "put", "post", "patch", "delete")
    }
    assert documented == set(ROUTES)


def test_r2_an_outsider_is_refused_on_every_route_of_a_chat_and_changes_nothing(club: Club) -> None:
    before = club.seen_by_owner()
    for route in ROUTES:
        reply = club.call(club.outsider, route)
        assert (reply.status, reply.json["error"]["code"]) == (403, "NOT_A_MEMBER"), (route, reply.text)
        assert "between us" not in reply.text
    assert club.seen_by_owner() == before


def test_r2_a_chat_that_does_not_exist_is_not_found_on_every_route(club: Club) -> None:
    for route in ROUTES:
        reply = club.call(club.outsider, route, NOWHERE)
        assert (reply.status, reply.json["error"]["code"]) == (404, "NOT_FOUND"), (route, reply.text)


def test_an_outsider_finds_the_chat_in_no_list_of_their_own(club: Club) -> None:
    assert club.outsider.call("GET", "/chats").data == []
    assert club.outsider.call("GET", "/delivery-state").data == []
    assert club.outsider.call("GET", f"/delivery-state?chat_ids={club.chat_id}").data == []


@pytest.mark.parametrize("frame_type", FRAMES)
def test_an_outsider_is_refused_with_every_frame_and_cannot_tell_whether_the_chat_exists(
    club: Club, frame_type: str
) -> None:
    before = club.seen_by_owner()
    with club.outsider.connect() as websocket:
        refusals = []
        for chat_id in (club.chat_id, NOWHERE):
            websocket.post(frame_type, chat_id=chat_id, **FRAMES[frame_type])
            refusals.append(websocket.error())
        assert websocket.is_usable()
    assert [refusal.pop("chat_id") for refusal in refusals] == [club.chat_id, NOWHERE]
    assert refusals[0] == refusals[1]
    assert (refusals[0]["code"], refusals[0]["retryable"]) == ("NOT_A_MEMBER", False)
    assert club.seen_by_owner() == before


def test_an_outsider_who_knows_the_id_of_a_message_learns_nothing_by_sending_it_again(club: Club) -> None:
    with club.outsider.connect() as websocket:
        key = club.message["client_message_id"]
        websocket.post("send_message", chat_id=club.chat_id, client_message_id=key, content="between us")
        assert websocket.error()["code"] == "NOT_A_MEMBER"


def test_an_outsider_who_listens_hears_nothing(club: Club) -> None:
    with club.outsider.connect() as listening, club.member.connect() as reading, club.owner.connect() as writing:
        listening.post("sync_request", chat_id=club.chat_id, last_acked_sequence=0)
        assert listening.error()["code"] == "NOT_A_MEMBER"
        writing.send(club.chat_id, "still between us")
        assert reading.receive("message")["content"] == "still between us"
        assert listening.is_usable()


# --- users who were members ------------------------------------------------------------------------------------------

Ending = Callable[[Club], Reply]
ENDINGS: dict[str, Ending] = {
    "removed": lambda club: club.owner.call("DELETE", f"/chats/{club.chat_id}/members/{club.member.user_id}"),
    "left": lambda club: club.member.call("POST", f"/chats/{club.chat_id}/leave"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_f8_a_removed_member_loses_access_at_once_on_the_open_socket_and_on_rest(club: Club, ending: str) -> None:
    tablet = User(club.owner.server, club.owner.phone_number)
    with club.member.connect() as websocket, club.owner.connect() as writing, tablet.connect() as reading:
        assert len(websocket.sync(club.chat_id)["messages"]) == 1
        assert ENDINGS[ending](club).status == 204
        for frame_type, fields in FRAMES.items():
            websocket.post(frame_type, chat_id=club.chat_id, **fields)
            assert websocket.error()["code"] == "NOT_A_MEMBER", frame_type
        for route in ROUTES:
            reply = club.call(club.member, route)
            assert (reply.status, reply.json["error"]["code"]) == (403, "NOT_A_MEMBER"), (route, reply.text)
        writing.send(club.chat_id, "behind your back")
        assert reading.receive("message")["content"] == "behind your back"
        assert websocket.is_usable(), "and nothing else came before this answer"
    assert [each["content"] for each in club.owner.history(club.chat_id)] == ["between us", "behind your back"]


def test_f8_a_member_who_is_added_again_goes_on_from_their_watermark_and_sees_all(club: Club) -> None:
    with club.member.connect() as websocket:
        websocket.sync(club.chat_id)
        websocket.post("ack", chat_id=club.chat_id, last_acked_sequence=1)
        assert websocket.is_usable()
        _acked(club, 1)
        assert ENDINGS["removed"](club).status == 204
        with club.owner.connect() as writing:
            writing.send(club.chat_id, "behind your back")
        added = club.owner.call("POST", f"/chats/{club.chat_id}/members", {"user_id": club.member.user_id})
        assert added.status == 201
        _acked(club, 1)
        batch = websocket.sync(club.chat_id, after=1)
        assert [each["content"] for each in batch["messages"]] == ["behind your back"]
        assert websocket.send(club.chat_id, "here I am again")["sequence"] > batch["messages"][-1]["sequence"]


def _acked(club: Club, sequence: int) -> None:
    [state] = club.member.call("GET", f"/delivery-state?chat_ids={club.chat_id}").data
    assert state["last_acked_sequence"] == sequence


# --- sessions that were revoked ---------------------------------------------------------------------------------------


def _reuse(user: User) -> None:
    """A client presents the refresh token of before: the session was stolen."""
    old = {"refresh_token": user.refresh_token}
    for expected in (200, 401):
        reply = request(user.server, "POST", "/api/v1/auth/refresh", old, X_Device_ID=user.device_id)
        assert reply.status == expected


def _again(user: User) -> None:
    """The same device signs in again: its old session is replaced."""
    User(user.server, user.phone_number, device_id=user.device_id)


REVOCATIONS: dict[str, Callable[[User, User], object]] = {
    "logout": lambda mine, other: mine.call("POST", "/auth/logout"),
    "revoked by itself": lambda mine, other: mine.call("DELETE", f"/sessions/{mine.session_id}"),
    "revoked by another device": lambda mine, other: other.call("DELETE", f"/sessions/{mine.session_id}"),
    "all others revoked": lambda mine, other: other.call("DELETE", "/sessions"),
    "refresh token used twice": lambda mine, other: _reuse(mine),
    "same device signs in again": lambda mine, other: _again(mine),
}


@pytest.mark.parametrize("how", REVOCATIONS)
def test_r20_a_revoked_session_has_its_sockets_closed_and_its_next_request_refused(
    server: ServerProcess, how: str
) -> None:
    phone_number = _new_phone()
    mine, other = User(server, phone_number), User(server, phone_number)
    with mine.connect() as websocket, other.connect() as other_websocket:
        REVOCATIONS[how](mine, other)
        _check_revoked(mine)
        assert websocket.error()["code"] == "UNAUTHORIZED"
        frame, code = websocket.closing()
        assert (frame["reason"], frame["reconnect_allowed"], code) == ("session_revoked", False, 1008)
        assert other_websocket.is_usable(), "another session of the same user is another session"
    assert other.call("GET", "/users/me").status == 200


def test_a_sixth_session_ends_the_oldest_one(server: ServerProcess) -> None:
    phone_number = _new_phone()
    oldest = User(server, phone_number)
    with oldest.connect() as websocket:
        newer = [User(server, phone_number) for _ in range(5)]
        assert websocket.error()["code"] == "UNAUTHORIZED"
        assert websocket.closing()[0]["reason"] == "session_revoked"
        _check_revoked(oldest)
    assert [user.call("GET", "/users/me").status for user in newer] == [200] * 5


@pytest.mark.parametrize("kind", ["stop", "kill"])
def test_r20_f13_a_revoked_token_is_refused_though_the_server_has_forgotten_whom_it_revoked(
    tmp_path: Path, kind: str
) -> None:
    """What was kept in memory only, as a directory that was flushed, is gone; the sessions decide."""
    data = tmp_path / "data"
    with serving(data) as server:
        mine, other = User(server, "+4915112345678"), User(server, "+4915112345678")
        assert mine.call("POST", "/auth/logout").status == 204
        server.stop() if kind == "stop" else server.kill()
    with serving(data) as server:
        mine.server = other.server = server
        _check_revoked(mine)
        assert other.call("GET", "/users/me").status == 200
        with other.connect() as websocket:
            assert websocket.is_usable()


def _check_revoked(user: User) -> None:
    reply = user.call("GET", "/users/me")
    assert (reply.status, reply.json["error"]["code"]) == (401, "UNAUTHORIZED")
    assert reply.json["error"]["details"]["reason"] == "token_revoked"
    refused = try_handshake(user.server, user.access_token)
    assert (refused.status, refused.json["error"]) == (401, "token_revoked")


# --- everybody who may ------------------------------------------------------------------------------------------------


def test_f14_members_of_a_chat_made_over_rest_receive_its_first_message_by_websocket(server: ServerProcess) -> None:
    users = [User(server, _new_phone()) for _ in range(3)]
    with users[0].connect() as writing, users[1].connect() as one, users[2].connect() as two:
        chat_id = users[0].create_group(*users[1:])
        ack = writing.send(chat_id, "welcome")
        received = [_without(websocket.receive("message"), "type", "prev_sequence") for websocket in (one, two)]
        synced = [_only(websocket, chat_id) for websocket in (writing, one, two)]
    [kept] = users[0].history(chat_id)
    assert received == [_without(kept, "sender")] * 2 == synced[1:] == synced[:1] * 2  # R22
    assert {name: kept[name] for name in ("message_id", "sequence", "created_at")}.items() <= ack.items()


def _only(websocket: WebSocketClient, chat_id: str) -> Json:
    [message] = websocket.sync(chat_id)["messages"]
    return _without(message, "prev_sequence")


def _without(message: Json, *names: str) -> Json:
    return {name: value for name, value in message.items() if name not in names}
