"""Chats over REST: one direct chat per pair, groups as asked for, once per Idempotency-Key."""

import asyncio

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import (
    Forbidden,
    InvalidOperation,
    KeyReused,
    NotAMember,
    NotFound,
    OutcomeUnknown,
    UserNotFound,
    ValidationFailed,
)
from seriatim.domain.times import iso
from tests.support.durability_harness import ANN, BOB, CHAT, CID, EVE, DurabilityHarness
from tests.support.scripted_wire import LOST_RESPONSE
from tests.support.virtual_time import simulate
from tests.unit.api.chat_api_harness import ChatApiHarness, field_of

UNKNOWN = "user_unknown"
FOR_EVER = "9999-12-31T23:59:59.999Z"


async def test_a_new_group_has_the_creator_as_owner_and_the_others_as_members(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    reply = await api.ask(ANN, "POST /chats", {"type": "group", "name": " Team\t", "member_ids": [CID, BOB]})
    chat = reply.data
    assert reply.status == 201
    assert (chat["type"], chat["name"], chat["created_by"], chat["member_count"]) == ("group", "Team", ANN, 3)
    assert [(each["user_id"], each["role"], each["display_name"]) for each in chat["members"]] == [
        (ANN, "owner", "Ann"),
        (BOB, "member", "Bob"),
        (CID, "member", "Cid"),
    ]
    assert chat["current_sequence"] == 0
    assert chat["my_membership"] | {"joined_at": ""} == {
        "role": "owner",
        "joined_at": "",
        "muted_until": None,
        "last_acked_sequence": 0,
    }
    assert await api.data(BOB, f"GET /chats/{chat['chat_id']}") == chat | {
        "my_membership": chat["my_membership"] | {"role": "member"}
    }


async def test_a_chat_shows_how_far_it_goes_and_how_far_the_caller_is(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(7)
    harness.store.put_watermark(BOB, CHAT, 4)
    chat = await api.data(BOB, f"GET /chats/{CHAT}")
    assert (chat["current_sequence"], chat["my_membership"]["last_acked_sequence"]) == (7, 4)


async def test_members_is_another_name_of_member_ids(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    chat = await api.data(ANN, "POST /chats", {"type": "group", "members": [BOB]})
    assert [each["user_id"] for each in chat["members"]] == [ANN, BOB]
    both = {"type": "group", "members": [BOB], "member_ids": [BOB]}
    assert (await api.ask(ANN, "POST /chats", both)).status == 201
    with pytest.raises(ValidationFailed) as refused:
        await api.ask(ANN, "POST /chats", both | {"members": [CID]})
    assert field_of(refused.value) == ("members", "MISMATCH")


CROWD = [f"user_{number}" for number in range(limits.GROUP_MEMBERS_MAX)]


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"type": "group"}, "member_ids", "REQUIRED"),
        ({"type": "group", "member_ids": []}, "member_ids", "MIN_LENGTH"),
        ({"type": "group", "member_ids": CROWD}, "member_ids", "TOO_LONG"),
        ({"type": "group", "member_ids": [BOB, BOB]}, "member_ids", "NOT_ALLOWED"),
        ({"type": "group", "member_ids": [BOB, ANN]}, "member_ids", "NOT_ALLOWED"),
        ({"type": "group", "member_ids": ["user_bob\n"]}, "member_ids", "INVALID_FORMAT"),
        ({"type": "group", "member_ids": [BOB], "name": " \t "}, "name", "MIN_LENGTH"),
        ({"type": "group", "member_ids": [BOB], "name": "x" * 129}, "name", "TOO_LONG"),
        ({"type": "group", "member_ids": [BOB], "name": "a\x00b"}, "name", "INVALID_FORMAT"),
        ({"type": "direct", "member_ids": [BOB, CID]}, "member_ids", "TOO_LONG"),
        ({"type": "direct", "member_ids": [ANN]}, "member_ids", "NOT_ALLOWED"),
        ({"type": "channel", "member_ids": [BOB]}, "type", "NOT_ALLOWED"),
        ({"member_ids": [BOB]}, "type", "REQUIRED"),
    ],
)
def test_a_chat_that_cannot_be_is_refused_by_field(body: dict[str, object], field: str, code: str) -> None:
    async def refused(harness: DurabilityHarness) -> None:
        api, before = ChatApiHarness(harness), dict(harness.store.chats)
        with pytest.raises(ValidationFailed) as error:
            await api.ask(ANN, "POST /chats", body)
        assert field_of(error.value) == (field, code)
        assert harness.store.chats == before

    simulate(refused)


async def test_a_name_of_128_characters_within_spaces_is_accepted_and_none_is_too(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    named = await api.data(ANN, "POST /chats", {"type": "group", "member_ids": [BOB], "name": f"  {'x' * 128}  "})
    assert named["name"] == "x" * 128
    assert (await api.data(ANN, "POST /chats", {"type": "group", "member_ids": [BOB], "name": None}))["name"] is None


async def test_with_unknown_members_nothing_is_written_and_they_are_named(harness: DurabilityHarness) -> None:
    api, before = ChatApiHarness(harness), dict(harness.store.chats)
    with pytest.raises(UserNotFound) as refused:
        await api.ask(ANN, "POST /chats", {"type": "group", "member_ids": [UNKNOWN, BOB, "user_0"]})
    assert refused.value.details == {"user_ids": [UNKNOWN, "user_0"]}
    with pytest.raises(UserNotFound):
        await api.ask(ANN, "POST /chats", {"type": "direct", "member_ids": [UNKNOWN]})
    assert harness.store.chats == before
    assert api.creations() == []


# --- direct chats -----------------------------------------------------------------------------------------------------


async def test_F5_R8_a_pair_has_one_direct_chat_whichever_of_the_two_asks_and_however_often(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    first = await api.ask(ANN, "POST /chats", {"type": "direct", "member_ids": [BOB], "name": "x" * 200})
    again = await api.ask(ANN, "POST /chats", {"type": "direct", "member_ids": [BOB]})
    swapped = await api.ask(BOB, "POST /chats", {"type": "direct", "member_ids": [ANN]})
    assert [each.status for each in (first, again, swapped)] == [201, 200, 200]
    assert [each.headers.get("x-idempotent-replay") for each in (first, again, swapped)] == [None, "true", "true"]
    assert {each.data["chat_id"] for each in (first, again, swapped)} == {first.data["chat_id"]}
    assert first.data["name"] is None
    assert [event.chat_id for event in api.creations()] == [first.data["chat_id"]]


async def test_F5_R8_a_pair_that_asks_all_at_once_gets_one_direct_chat(harness: DurabilityHarness) -> None:
    desks = [ChatApiHarness(harness, f"api-{number}") for number in range(3)]
    replies = await asyncio.gather(
        *[api.ask(ANN, "POST /chats", {"type": "direct", "member_ids": [BOB]}) for api in desks],
        *[api.ask(BOB, "POST /chats", {"type": "direct", "member_ids": [ANN]}) for api in desks],
    )
    assert sorted(reply.status for reply in replies) == [200] * 5 + [201]
    assert len({reply.data["chat_id"] for reply in replies}) == 1
    assert len(desks[0].creations()) == 1


async def test_R9_a_direct_chat_has_its_two_members_for_ever(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    chat_id = await api.direct(ANN, BOB)
    for request, body in (
        (f"PATCH /chats/{chat_id}", {"name": "Us"}),
        (f"POST /chats/{chat_id}/members", {"user_id": CID}),
        (f"POST /chats/{chat_id}/members", {"user_id": UNKNOWN}),
        (f"DELETE /chats/{chat_id}/members/{BOB}", None),
        (f"DELETE /chats/{chat_id}/members/{ANN}", None),
        (f"PATCH /chats/{chat_id}/members/{BOB}", {"role": "admin"}),
        (f"POST /chats/{chat_id}/leave", None),
    ):
        with pytest.raises(InvalidOperation):
            await api.ask(ANN, request, body)
    chat = await api.data(BOB, f"GET /chats/{chat_id}")
    assert [(each["user_id"], each["role"]) for each in chat["members"]] == [(ANN, "member"), (BOB, "member")]
    assert (chat["name"], chat["member_count"]) == (None, 2)
    assert list(harness.store.pairs.values()) == [chat_id]


async def test_a_replayed_key_finds_the_direct_chat_that_was_there_before(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    chat_id = await api.direct(BOB, ANN)
    body = {"type": "direct", "member_ids": [BOB]}
    first = await api.ask(ANN, "POST /chats", body, key=1)
    again = await api.ask(ANN, "POST /chats", body, key=1)
    assert [first.status, again.status] == [200, 200]
    assert first.data == again.data
    assert again.data["chat_id"] == chat_id


async def test_a_replayed_key_of_a_new_direct_chat_keeps_its_status_and_publishes_no_second_event(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    body = {"type": "direct", "member_ids": [BOB]}
    first = await api.ask(ANN, "POST /chats", body, key=1)
    again = await api.ask(ANN, "POST /chats", body, key=1)
    assert [first.status, again.status] == [201, 201]
    assert again.headers["x-idempotent-replay"] == "true"
    assert first.data == again.data
    assert len(api.creations()) == 1


# --- once per key -----------------------------------------------------------------------------------------------------


async def test_F10_a_replayed_creation_shows_the_chat_as_it_is_now_and_publishes_one_event(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    body = {"type": "group", "member_ids": [BOB]}
    first = await api.ask(ANN, "POST /chats", body, key=1)
    chat_id = first.data["chat_id"]
    await api.ask(ANN, f"POST /chats/{chat_id}/members", {"user_id": CID})
    again = await api.ask(ANN, "POST /chats", body, key=1)
    assert (again.status, again.headers["x-idempotent-replay"]) == (201, "true")
    assert (again.data["chat_id"], again.data["member_count"]) == (chat_id, 3)
    assert len(api.creations()) == 1
    with pytest.raises(KeyReused):
        await api.ask(ANN, "POST /chats", {"type": "group", "member_ids": [CID]}, key=1)


async def test_without_a_key_or_with_another_one_a_second_group_is_made(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    body = {"type": "group", "member_ids": [BOB]}
    replies = [await api.ask(ANN, "POST /chats", body, key=key) for key in (None, None, 1, 2)]
    assert len({reply.data["chat_id"] for reply in replies}) == 4


async def test_a_creation_with_an_unknown_outcome_is_resumed_by_its_key(harness: DurabilityHarness) -> None:
    api, before = ChatApiHarness(harness), len(harness.store.chats)
    body = {"type": "group", "member_ids": [BOB]}
    api.node.wire.on("create_group", LOST_RESPONSE)
    with pytest.raises(OutcomeUnknown):
        await api.ask(ANN, "POST /chats", body, key=1)
    reply = await api.ask(ANN, "POST /chats", body, key=1)
    assert reply.status == 201
    assert len(harness.store.chats) == before + 1
    assert {event.chat_id for event in api.creations()} == {reply.data["chat_id"]}


async def test_a_refused_creation_gives_its_key_back(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    with pytest.raises(UserNotFound):
        await api.ask(ANN, "POST /chats", {"type": "group", "member_ids": [UNKNOWN]}, key=1)
    assert (await api.ask(ANN, "POST /chats", {"type": "group", "member_ids": [BOB]}, key=1)).status == 201


# --- name and quiet ---------------------------------------------------------------------------------------------------


async def test_a_renamed_group_answers_without_its_members(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    chat_id = await api.group(ANN, BOB, name="Old")
    renamed = await api.data(ANN, f"PATCH /chats/{chat_id}", {"name": "  New "})
    assert renamed["name"] == "New"
    assert "members" not in renamed
    assert (await api.data(ANN, f"PATCH /chats/{chat_id}", {"name": None}))["name"] is None
    for bad in ("", "  ", "x" * 129, "a\x7fb"):
        with pytest.raises(ValidationFailed):
            await api.ask(ANN, f"PATCH /chats/{chat_id}", {"name": bad})
    with pytest.raises(ValidationFailed) as refused:
        await api.ask(ANN, f"PATCH /chats/{chat_id}", {})
    assert field_of(refused.value) == ("name", "REQUIRED")
    with pytest.raises(Forbidden):
        await api.ask(BOB, f"PATCH /chats/{chat_id}", {"name": "Mine"})


async def test_quiet_lasts_for_the_hours_asked_for_or_for_ever_and_is_the_members_own(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    hour = await api.data(BOB, f"POST /chats/{CHAT}/mute", {"duration_hours": 1})
    assert iso(harness.now_ms() + 3_599_000) < hour["muted_until"] <= iso(harness.now_ms() + 3_600_000)
    for for_ever in ({}, None, {"duration_hours": None}):
        muted = await api.data(BOB, f"POST /chats/{CHAT}/mute", for_ever)
        assert muted == {"chat_id": CHAT, "muted_until": FOR_EVER}
    assert (await api.data(BOB, f"GET /chats/{CHAT}"))["my_membership"]["muted_until"] == FOR_EVER
    assert (await api.data(ANN, f"GET /chats/{CHAT}"))["my_membership"]["muted_until"] is None
    assert await api.data(BOB, f"POST /chats/{CHAT}/unmute") == {"chat_id": CHAT, "muted_until": None}
    assert (await api.data(BOB, f"GET /chats/{CHAT}"))["my_membership"]["muted_until"] is None


@pytest.mark.parametrize("hours", [0, -1, 8761, 1.5, True, "1"])
def test_quiet_for_no_hours_or_more_than_a_year_is_refused(hours: object) -> None:
    async def refused(harness: DurabilityHarness) -> None:
        with pytest.raises(ValidationFailed):
            await ChatApiHarness(harness).ask(BOB, f"POST /chats/{CHAT}/mute", {"duration_hours": hours})

    simulate(refused)


async def test_quiet_is_for_members(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    with pytest.raises(NotAMember):
        await api.ask(EVE, f"POST /chats/{CHAT}/mute", {})
    with pytest.raises(NotFound):
        await api.ask(EVE, "POST /chats/chat_none/unmute")
