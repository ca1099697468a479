"""Members over REST: who may do what, to whom, in which chat; and that a change is published only after it is made."""

import asyncio
from collections.abc import Mapping

import pytest

from seriatim.domain import limits
from seriatim.domain.chat import ChatType, Role
from seriatim.domain.errors import (
    AlreadyAMember,
    BadRequest,
    ChatFull,
    Forbidden,
    InvalidOperation,
    KeyReused,
    NotAMember,
    NotFound,
    OutcomeUnknown,
    SeriatimError,
    UserNotFound,
    ValidationFailed,
)
from seriatim.domain.events import ChangeType
from seriatim.ports.directory import CachedMembers
from tests.support.durability_harness import ANN, BOB, CHAT, CID, EVE, DurabilityHarness
from tests.support.scripted_wire import LOST_RESPONSE, UNAVAILABLE, with_before
from tests.support.virtual_time import simulate
from tests.unit.api.chat_api_harness import DAN, ChatApiHarness, field_of

UNKNOWN = "user_unknown"
FAY, GIL = "user_fay", "user_gil"  # a member and an admin, to do something to

ROLES = {"owner": ANN, "admin": BOB, "member": CID, "outsider": EVE}

# docs/spec/rest.md#permissions: the request, its body, and the status for owner, admin, member and outsider.
MATRIX: Mapping[str, tuple[str, dict[str, object] | None, tuple[int, int, int, int]]] = {
    "read the chat": ("GET /chats/C", None, (200, 200, 200, 403)),
    "read the members": ("GET /chats/C/members", None, (200, 200, 200, 403)),
    "read the history": ("GET /chats/C/messages", None, (200, 200, 200, 403)),
    "read one message": ("GET /chats/C/messages/1", None, (200, 200, 200, 403)),
    "read around a message": ("GET /chats/C/messages/around/1", None, (200, 200, 200, 403)),
    "read the delivery status": ("GET /chats/C/delivery-status", None, (200, 200, 200, 403)),
    "acknowledge": ("PATCH /chats/C/delivery-state", {"last_acked_sequence": 1}, (200, 200, 200, 403)),
    "mute": ("POST /chats/C/mute", {}, (200, 200, 200, 403)),
    "unmute": ("POST /chats/C/unmute", None, (200, 200, 200, 403)),
    "rename": ("PATCH /chats/C", {"name": "New"}, (200, 200, 403, 403)),
    "add as member": ("POST /chats/C/members", {"user_id": DAN}, (201, 201, 403, 403)),
    "add as admin": ("POST /chats/C/members", {"user_id": DAN, "role": "admin"}, (201, 403, 403, 403)),
    "remove a member": (f"DELETE /chats/C/members/{FAY}", None, (204, 204, 403, 403)),
    "remove an admin": (f"DELETE /chats/C/members/{GIL}", None, (204, 403, 403, 403)),
    "make an admin": (f"PATCH /chats/C/members/{FAY}", {"role": "admin"}, (200, 403, 403, 403)),
    "make a member": (f"PATCH /chats/C/members/{GIL}", {"role": "member"}, (200, 403, 403, 403)),
    "leave": ("POST /chats/C/leave", None, (400, 204, 204, 403)),
}

CELLS = [
    pytest.param(action, role, status, id=f"{role} {action}")
    for action, (_, _, statuses) in MATRIX.items()
    for role, status in zip(ROLES, statuses, strict=True)
]


@pytest.mark.parametrize(("action", "role", "status"), CELLS)
def test_F7_each_cell_of_the_permission_matrix(action: str, role: str, status: int) -> None:
    async def cell(harness: DurabilityHarness) -> None:
        api = ChatApiHarness(harness)
        chat_id = await _staffed(api)
        request, body, _ = MATRIX[action]
        request = request.replace("/C", f"/{chat_id}")
        if status < 300:
            assert (await api.ask(ROLES[role], request, body)).status == status
            return
        expected = InvalidOperation if status == 400 else NotAMember if role == "outsider" else Forbidden
        with pytest.raises(expected) as refused:
            await api.ask(ROLES[role], request, body)
        assert refused.value.http_status == status
        if expected is Forbidden:
            assert refused.value.details["your_role"] == role
            assert refused.value.details["required_role"] in ("admin", "owner")

    simulate(cell)


@pytest.mark.parametrize("action", MATRIX)
def test_R2_in_a_chat_that_does_not_exist_there_is_nothing_to_do(action: str) -> None:
    async def missing(harness: DurabilityHarness) -> None:
        request, body, _ = MATRIX[action]
        with pytest.raises(NotFound) as refused:
            await ChatApiHarness(harness).ask(ANN, request.replace("/C", "/chat_none"), body)
        assert type(refused.value) is NotFound

    simulate(missing)


@pytest.mark.parametrize("action", MATRIX)
def test_R12_a_removed_member_is_an_outsider_at_once(action: str) -> None:
    async def removed(harness: DurabilityHarness) -> None:
        api = ChatApiHarness(harness)
        chat_id = await _staffed(api)
        await api.ask(ANN, f"DELETE /chats/{chat_id}/members/{GIL}")
        request, body, _ = MATRIX[action]
        with pytest.raises(NotAMember):
            await api.ask(GIL, request.replace("/C", f"/{chat_id}"), body)

    simulate(removed)


# --- the order of checks ----------------------------------------------------------------------------------------------


async def test_oneself_is_no_target_whatever_the_role(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    chat_id = await _staffed(api)
    for user_id in (ANN, BOB, CID):
        with pytest.raises(InvalidOperation):
            await api.ask(user_id, f"DELETE /chats/{chat_id}/members/{user_id}")
        with pytest.raises(InvalidOperation):
            await api.ask(user_id, f"PATCH /chats/{chat_id}/members/{user_id}", {"role": "member"})


async def test_a_user_who_may_not_add_does_not_learn_which_users_exist(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    for user_id, error in ((CID, Forbidden), (EVE, NotAMember)):
        for target in (UNKNOWN, BOB, DAN):
            with pytest.raises(error):
                await api.ask(user_id, f"POST /chats/{CHAT}/members", {"user_id": target})
    with pytest.raises(UserNotFound) as refused:
        await api.ask(ANN, f"POST /chats/{CHAT}/members", {"user_id": UNKNOWN})
    assert refused.value.details == {"user_ids": [UNKNOWN]}


async def test_a_member_is_not_added_again(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    with pytest.raises(AlreadyAMember) as refused:
        await api.ask(ANN, f"POST /chats/{CHAT}/members", {"user_id": BOB})
    assert refused.value.details == {"joined_at": harness.store.members(CHAT)[BOB].joined_at}


async def test_a_user_who_is_no_member_is_neither_removed_nor_promoted(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    with pytest.raises(NotFound):
        await api.ask(ANN, f"DELETE /chats/{CHAT}/members/{DAN}")
    with pytest.raises(NotFound):
        await api.ask(ANN, f"PATCH /chats/{CHAT}/members/{DAN}", {"role": "admin"})


async def test_R10_a_group_keeps_its_one_owner(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    chat_id = await _staffed(api)
    for user_id, request, body in (
        (ANN, f"POST /chats/{chat_id}/leave", None),
        (BOB, f"DELETE /chats/{chat_id}/members/{ANN}", None),
        (ANN, f"PATCH /chats/{chat_id}/members/{BOB}", {"role": "owner"}),
        (ANN, f"POST /chats/{chat_id}/members", {"user_id": DAN, "role": "owner"}),
    ):
        with pytest.raises(InvalidOperation):
            await api.ask(user_id, request, body)
    members = await api.data(ANN, f"GET /chats/{chat_id}/members")
    assert [each["user_id"] for each in members if each["role"] == "owner"] == [ANN]


@pytest.mark.parametrize(
    "body", [{}, {"user_id": ""}, {"user_id": "user_dan\n"}, {"user_id": 7}, {"user_id": DAN, "role": "king"}]
)
def test_a_member_that_cannot_be_is_refused_by_field(body: dict[str, object]) -> None:
    async def refused(harness: DurabilityHarness) -> None:
        with pytest.raises(ValidationFailed) as error:
            await ChatApiHarness(harness).ask(ANN, f"POST /chats/{CHAT}/members", body)
        assert field_of(error.value)[0] == ("role" if "role" in body else "user_id")

    simulate(refused)


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_an_added_member_is_shown_with_who_added_them(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    reply = await api.ask(ANN, f"POST /chats/{CHAT}/members", {"user_id": DAN, "role": "admin"})
    assert reply.status == 201
    assert reply.data.pop("joined_at") == harness.store.members(CHAT)[DAN].joined_at
    assert reply.data == {"chat_id": CHAT, "user_id": DAN, "role": "admin", "display_name": "Dan", "added_by": ANN}


async def test_a_changed_role_is_shown_with_who_changed_it(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    changed = await api.data(ANN, f"PATCH /chats/{CHAT}/members/{BOB}", {"role": "admin"})
    assert changed.pop("joined_at") == harness.store.members(CHAT)[BOB].joined_at
    assert changed == {"chat_id": CHAT, "user_id": BOB, "role": "admin", "display_name": "Bob", "updated_by": ANN}


async def test_the_older_form_adds_and_removes_with_status_200(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    added = await api.ask(ANN, f"POST /chats/{CHAT}/members", {"user_id": DAN, "action": "add"})
    assert (added.status, added.data["user_id"], added.data["added_by"]) == (200, DAN, ANN)
    removed = await api.ask(ANN, f"POST /chats/{CHAT}/members", {"user_id": DAN, "action": "remove"})
    assert (removed.status, removed.data) == (200, {"chat_id": CHAT, "user_id": DAN, "removed": True})
    assert DAN not in harness.store.members(CHAT)
    with pytest.raises(Forbidden):
        await api.ask(BOB, f"POST /chats/{CHAT}/members", {"user_id": CID, "action": "remove"})


async def test_R3_the_pages_of_members_are_all_members_once_and_lead_back(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    everybody = sorted([ANN, *[api.add_user(f"user_{number:02d}") for number in range(10)]])
    chat_id = await api.group(ANN, *[each for each in everybody if each != ANN])
    assert [each["user_id"] for each in await api.data(ANN, f"GET /chats/{chat_id}/members")] == everybody
    pages = await api.walk(ANN, f"GET /chats/{chat_id}/members?limit=4")
    assert [[each["user_id"] for each in page] for page in pages] == [everybody[:4], everybody[4:8], everybody[8:]]
    reply = await api.ask(ANN, f"GET /chats/{chat_id}/members?limit=4")
    assert reply.pagination is not None
    assert reply.pagination.prev_cursor is None
    second = await api.ask(ANN, f"GET /chats/{chat_id}/members?limit=4&cursor={reply.pagination.next_cursor}")
    assert second.pagination is not None
    back = await api.ask(ANN, f"GET /chats/{chat_id}/members?limit=4&cursor={second.pagination.prev_cursor}")
    assert back.data == pages[0]
    with pytest.raises(BadRequest):
        await api.ask(ANN, f"GET /chats/{CHAT}/members?cursor={reply.pagination.next_cursor}")


# --- once per key -----------------------------------------------------------------------------------------------------


async def test_an_addition_repeated_with_its_key_is_replayed_as_it_is_now(harness: DurabilityHarness) -> None:
    api, request = ChatApiHarness(harness), f"POST /chats/{CHAT}/members"
    first = await api.ask(ANN, request, {"user_id": DAN}, key=1)
    await api.ask(ANN, f"PATCH /chats/{CHAT}/members/{DAN}", {"role": "admin"})
    again = await api.ask(ANN, request, {"user_id": DAN}, key=1)
    assert (first.status, again.status) == (201, 201)
    assert again.data == first.data | {"role": "admin"}
    assert again.headers["x-idempotent-replay"] == "true"
    assert [event.change_type for event in harness.membership_events()] == [ChangeType.ADDED, ChangeType.ROLE_CHANGED]
    with pytest.raises(KeyReused):
        await api.ask(ANN, request, {"user_id": EVE}, key=1)


async def test_a_replayed_addition_shows_no_removed_member_and_is_refused_to_a_removed_asker(
    harness: DurabilityHarness,
) -> None:
    api, request = ChatApiHarness(harness), f"POST /chats/{CHAT}/members"
    await api.ask(ANN, f"PATCH /chats/{CHAT}/members/{BOB}", {"role": "admin"})
    await api.ask(BOB, request, {"user_id": DAN}, key=1)
    await api.ask(ANN, f"DELETE /chats/{CHAT}/members/{DAN}")
    with pytest.raises(NotFound):
        await api.ask(BOB, request, {"user_id": DAN}, key=1)
    await api.ask(ANN, f"DELETE /chats/{CHAT}/members/{BOB}")
    with pytest.raises(NotAMember):
        await api.ask(BOB, request, {"user_id": DAN}, key=1)


async def test_a_change_with_an_unknown_outcome_is_resumed_by_its_key(harness: DurabilityHarness) -> None:
    api, request = ChatApiHarness(harness), f"POST /chats/{CHAT}/members"
    for operation, body in (
        ("add_member", {"user_id": DAN}),
        ("remove_member", {"user_id": DAN, "action": "remove"}),
    ):
        api.node.wire.on(operation, LOST_RESPONSE)
        with pytest.raises(OutcomeUnknown):
            await api.ask(ANN, request, body, key=len(operation))
        reply = await api.ask(ANN, request, body, key=len(operation))
        assert reply.data["user_id"] == DAN
    assert DAN not in harness.store.members(CHAT)


async def test_a_key_does_not_turn_another_users_addition_into_ones_own(harness: DurabilityHarness) -> None:
    api, request = ChatApiHarness(harness), f"POST /chats/{CHAT}/members"
    with pytest.raises(AlreadyAMember):
        await api.ask(ANN, request, {"user_id": BOB}, key=1)
    with pytest.raises(NotFound):
        await api.ask(ANN, request, {"user_id": DAN, "action": "remove"}, key=2)


# --- the cap, under concurrency ---------------------------------------------------------------------------------------


async def test_F6_a_group_has_room_for_a_hundred(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    crowd = [api.add_user(f"user_{number:02d}") for number in range(limits.GROUP_MEMBERS_MAX - 1)]
    chat = await api.data(ANN, "POST /chats", {"type": "group", "member_ids": crowd})
    assert chat["member_count"] == len(chat["members"]) == limits.GROUP_MEMBERS_MAX
    assert sorted(harness.store.members(chat["chat_id"])) == sorted([ANN, *crowd])
    with pytest.raises(ChatFull):
        await api.ask(ANN, f"POST /chats/{chat['chat_id']}/members", {"user_id": DAN})


async def test_F6_R11_of_ten_who_are_added_at_once_to_ninety_five_five_get_in(harness: DurabilityHarness) -> None:
    desks = [ChatApiHarness(harness, "api-1"), ChatApiHarness(harness, "api-2")]
    crowd = [desks[0].add_user(f"user_{number:03d}") for number in range(104)]
    chat_id = await desks[0].group(ANN, *crowd[:94])
    outcomes = await asyncio.gather(
        *[
            desks[index % 2].ask(ANN, f"POST /chats/{chat_id}/members", {"user_id": user_id})
            for index, user_id in enumerate(crowd[94:])
        ],
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, ChatFull) for outcome in outcomes) == 5
    assert len([outcome for outcome in outcomes if not isinstance(outcome, BaseException)]) == 5
    chat = await desks[1].data(ANN, f"GET /chats/{chat_id}")
    assert chat["member_count"] == len(chat["members"]) == limits.GROUP_MEMBERS_MAX


# --- what others hear of it -------------------------------------------------------------------------------------------


async def test_R21_no_event_precedes_its_commit(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    seen: list[bool] = []
    appends = api.node.events_wire
    appends.on("append", with_before(lambda: seen.append(len(harness.store.chats) == 2)))
    chat_id = await api.group(ANN, BOB)
    for request, body, done in (
        (f"POST /chats/{chat_id}/members", {"user_id": DAN}, lambda: DAN in harness.store.members(chat_id)),
        (
            f"PATCH /chats/{chat_id}/members/{DAN}",
            {"role": "admin"},
            lambda: harness.store.members(chat_id)[DAN].role is Role.ADMIN,
        ),
        (f"DELETE /chats/{chat_id}/members/{DAN}", None, lambda: DAN not in harness.store.members(chat_id)),
    ):
        appends.on("append", with_before(lambda done=done: seen.append(done())))  # type: ignore[misc]
        await api.ask(ANN, request, body)
    assert seen == [True] * 4


async def test_R21_a_refused_change_publishes_no_event(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    for user_id, request in ((CID, f"DELETE /chats/{CHAT}/members/{BOB}"), (ANN, f"POST /chats/{CHAT}/leave")):
        with pytest.raises(SeriatimError):
            await api.ask(user_id, request)
    assert harness.membership_events() == []


async def test_F11_with_the_event_log_down_an_addition_is_kept_the_cache_dropped_and_the_failure_reported(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    await api.directory.cache_members(CHAT, CachedMembers(1, (ANN, BOB, CID)), timeout_s=1)
    api.node.events_wire.always("append", UNAVAILABLE)
    assert (await api.ask(ANN, f"POST /chats/{CHAT}/members", {"user_id": DAN})).status == 201
    assert DAN in harness.store.members(CHAT)
    assert await api.directory.cached_members([CHAT], timeout_s=1) == {}
    assert api.unpublished.chats == [CHAT]


async def test_F14_what_is_created_over_rest_can_be_written_to_and_reaches_all_members(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    chat_id = await api.group(ANN, BOB, CID)
    receipt = await api.send(1, chat_id=chat_id, sender_id=BOB)
    assert receipt.sequence == 1
    assert harness.published(chat_id) == [1]
    assert (await api.node.catalog.members(chat_id, timeout_s=1)).user_ids == (ANN, BOB, CID)
    [created] = api.creations()
    assert (created.chat_type, created.initial_members) == (ChatType.GROUP, (ANN, BOB, CID))


async def _staffed(api: ChatApiHarness) -> str:
    """A group of everyone in `ROLES` but the outsider, a member and an admin more, and one message."""
    api.add_user(FAY), api.add_user(GIL)
    chat_id = await api.group(ANN, BOB, CID, FAY, GIL)
    for user_id in (BOB, GIL):
        await api.ask(ANN, f"PATCH /chats/{chat_id}/members/{user_id}", {"role": "admin"})
    await api.send(1, chat_id=chat_id)
    return chat_id
