"""Chats through the whole REST application: what a client gets for each error that they alone produce."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.domain import limits
from seriatim.domain.account import User
from seriatim.domain.message import Message
from seriatim.domain.times import iso
from tests.support.rest import Reply, RestClient, RestServer

KEY = "0b5e7a52-8f0e-4a55-9d0c-3d4e5f6a7b8c"


@pytest.fixture
async def users(tmp_path: Path) -> AsyncIterator["SignedInUsers"]:
    server = RestServer(tmp_path / "keys")
    users = SignedInUsers(server)
    await users.sign_in()
    yield users
    await server.close()


async def test_the_owner_gets_what_an_outsider_is_refused_NOT_A_MEMBER(users: "SignedInUsers") -> None:
    chat_id = await users.group()
    assert (await users.ask("ann", "GET", f"chats/{chat_id}")).data["member_count"] == 2
    _expect(await users.ask("eve", "GET", f"chats/{chat_id}"), 403, "NOT_A_MEMBER")
    _expect(await users.ask("eve", "GET", f"chats/{chat_id}/messages"), 403, "NOT_A_MEMBER")
    _expect(await users.ask("eve", "GET", "chats/chat_none"), 404, "NOT_FOUND")


async def test_a_member_without_the_role_learns_which_one_is_needed_FORBIDDEN(users: "SignedInUsers") -> None:
    chat_id = await users.group()
    refused = await users.ask("bob", "PATCH", f"chats/{chat_id}", {"name": "Mine"})
    _expect(refused, 403, "FORBIDDEN")
    assert refused.details == {"required_role": "admin", "your_role": "member"}


async def test_a_hundred_and_first_member_finds_no_room_CHAT_FULL(users: "SignedInUsers") -> None:
    crowd = [await users.add_user(f"user_{number:03d}") for number in range(limits.GROUP_MEMBERS_MAX - 1)]
    created = await users.ask("ann", "POST", "chats", {"type": "group", "member_ids": crowd})
    assert (created.status, created.data["member_count"]) == (201, limits.GROUP_MEMBERS_MAX)
    chat_id = created.data["chat_id"]
    refused = await users.ask("ann", "POST", f"chats/{chat_id}/members", {"user_id": users.ids["bob"]})
    _expect(refused, 400, "CHAT_FULL")


async def test_the_owner_cannot_leave_INVALID_OPERATION(users: "SignedInUsers") -> None:
    chat_id = await users.group()
    _expect(await users.ask("ann", "POST", f"chats/{chat_id}/leave"), 400, "INVALID_OPERATION")


async def test_no_user_joins_twice_ALREADY_A_MEMBER(users: "SignedInUsers") -> None:
    chat_id = await users.group()
    refused = await users.ask("ann", "POST", f"chats/{chat_id}/members", {"user_id": users.ids["bob"]})
    _expect(refused, 409, "ALREADY_A_MEMBER")
    assert list(refused.details) == ["joined_at"]


async def test_a_user_who_does_not_exist_cannot_be_added_USER_NOT_FOUND(users: "SignedInUsers") -> None:
    refused = await users.ask("ann", "POST", "chats", {"type": "group", "member_ids": ["user_none"]})
    _expect(refused, 404, "USER_NOT_FOUND")
    assert refused.details == {"user_ids": ["user_none"]}


async def test_a_sequence_beyond_the_end_is_not_acknowledged_UNPROCESSABLE_ENTITY(users: "SignedInUsers") -> None:
    chat_id = await users.group()
    users.write(chat_id, 1)
    for path in (f"delivery-state/{chat_id}", f"chats/{chat_id}/delivery-state"):
        refused = await users.ask("bob", "PATCH", path, {"last_acked_sequence": 2})
        _expect(refused, 422, "UNPROCESSABLE_ENTITY")
        assert refused.details["reason"] == "invalid_sequence"
        assert (await users.ask("bob", "PATCH", path, {"last_acked_sequence": 1})).data["last_acked_sequence"] == 1


async def test_a_key_answers_for_one_request_only_IDEMPOTENCY_KEY_REUSED(users: "SignedInUsers") -> None:
    body = {"type": "group", "member_ids": [users.ids["bob"]]}
    first = await users.ask("ann", "POST", "chats", body, key=KEY)
    again = await users.ask("ann", "POST", "chats", dict(reversed(body.items())), key=KEY)
    assert (first.status, again.status) == (201, 201)
    assert again.headers["x-idempotent-replay"] == "true"
    assert again.data == first.data
    _expect(await users.ask("ann", "POST", "chats", body | {"name": "Other"}, key=KEY), 409, "IDEMPOTENCY_KEY_REUSED")
    _expect(await users.ask("ann", "POST", "chats", body, key="no uuid"), 400, "VALIDATION_ERROR")


async def test_a_forged_cursor_is_refused_BAD_REQUEST(users: "SignedInUsers") -> None:
    chat_id = await users.group()
    _expect(await users.ask("ann", "GET", f"chats/{chat_id}/messages", query="cursor=forged"), 400, "BAD_REQUEST")


async def test_pages_and_bodies_without_content_have_their_shape(users: "SignedInUsers") -> None:
    chat_id = await users.group()
    for sequence in (1, 2, 3):
        users.write(chat_id, sequence)
    page = (await users.ask("bob", "GET", f"chats/{chat_id}/messages", query="limit=2")).json
    assert [each["sequence"] for each in page["data"]] == [3, 2]
    assert page["pagination"]["has_more"] is True
    assert page["pagination"]["prev_cursor"] is None
    rest = await users.ask(
        "bob", "GET", f"chats/{chat_id}/messages", query=f"limit=2&cursor={page['pagination']['next_cursor']}"
    )
    assert [each["sequence"] for each in rest.data] == [1]
    muted = await users.ask("bob", "POST", f"chats/{chat_id}/mute")
    assert muted.data["muted_until"].startswith("9999")
    left = await users.ask("bob", "POST", f"chats/{chat_id}/leave")
    assert (left.status, left.body) == (204, b"")
    _expect(await users.ask("bob", "GET", f"chats/{chat_id}/messages"), 403, "NOT_A_MEMBER")


async def test_the_older_path_and_field_names_serve_as_well(users: "SignedInUsers") -> None:
    body = {"type": "group", "members": [users.ids["bob"]]}
    created = await users.ask("ann", "POST", "/api/chats", body)
    assert created.status == 201
    change = {"user_id": users.ids["eve"], "action": "add"}
    added = await users.ask("ann", "POST", f"/api/chats/{created.data['chat_id']}/members", change)
    assert (added.status, added.data["role"]) == (200, "member")


class SignedInUsers:
    """Ann, Bob and Eve, signed in to one server."""

    def __init__(self, server: RestServer) -> None:
        self.server = server
        self.ids: dict[str, str] = {}
        self._tokens: dict[str, str] = {}
        self._rest: RestClient = server.client(rate_limits_off=True)

    async def sign_in(self) -> None:
        for number, name in enumerate(("ann", "bob", "eve")):
            signed_in = await self._rest.sign_in(f"+491511234567{number}")
            self.ids[name] = signed_in["user"]["user_id"]
            self._tokens[name] = signed_in["tokens"]["access_token"]

    async def add_user(self, user_id: str) -> str:
        now, phone = iso(self.server.clock.now_ms()), f"+4930{user_id.removeprefix('user_'):0>8}"
        user = User(user_id=user_id, phone_number=phone, display_name=None, created_at=now, updated_at=now)
        return await self.server.accounts.add_user(user, timeout_s=1)

    async def ask(
        self, name: str, method: str, path: str, json: object = None, *, query: str = "", key: str | None = None
    ) -> Reply:
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self._rest(method, path, json, token=self._tokens[name], query=query, headers=headers)

    async def group(self) -> Any:
        """A group of Ann and Bob."""
        body = {"type": "group", "member_ids": [self.ids["bob"]]}
        return (await self.ask("ann", "POST", "chats", body)).data["chat_id"]

    def write(self, chat_id: str, sequence: int) -> None:
        self.server.store.fill(
            Message(
                message_id=f"msg_{sequence}",
                chat_id=chat_id,
                sequence=sequence,
                sender_id=self.ids["ann"],
                client_message_id=KEY,
                content="text",
                content_type="text/plain",
                created_at=iso(self.server.clock.now_ms()),
            )
        )


def _expect(reply: Reply, status: int, code: str) -> None:
    assert (reply.status, reply.code) == (status, code)
    assert reply.json["error"]["message"]
    assert reply.json["error"]["request_id"] == reply.headers["x-request-id"]
