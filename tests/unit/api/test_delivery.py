"""Delivery state over REST: watermarks rise, stay within what was written, and are shown to members only."""

import pytest

from seriatim.api.delivery import check_chat_ids
from seriatim.domain import limits
from seriatim.domain.errors import BadRequest, Unprocessable, ValidationFailed
from tests.support.durability_harness import ANN, BOB, CHAT, CID, EVE, DurabilityHarness
from tests.support.virtual_time import simulate
from tests.unit.api.chat_api_harness import DAN, ChatApiHarness, field_of

BOTH = [f"PATCH /delivery-state/{CHAT}", f"PATCH /chats/{CHAT}/delivery-state"]


@pytest.mark.parametrize("request_line", BOTH)
def test_R7_a_watermark_rises_and_never_falls(request_line: str) -> None:
    async def acknowledge(harness: DurabilityHarness) -> None:
        api = ChatApiHarness(harness)
        harness.given_messages(10)
        first = await api.data(BOB, request_line, {"last_acked_sequence": 7})
        assert (first["chat_id"], first["last_acked_sequence"]) == (CHAT, 7)
        for lower in (7, 3, 1):
            assert await api.data(BOB, request_line, {"last_acked_sequence": lower}) == first
        raised = await api.data(BOB, request_line, {"last_acked_sequence": 10})
        assert raised["last_acked_sequence"] == 10
        assert raised["updated_at"] > first["updated_at"]

    simulate(acknowledge)


@pytest.mark.parametrize("request_line", BOTH)
def test_R7_nothing_beyond_the_newest_message_is_acknowledged_or_written(request_line: str) -> None:
    async def refuse(harness: DurabilityHarness) -> None:
        api = ChatApiHarness(harness)
        with pytest.raises(Unprocessable):
            await api.ask(BOB, request_line, {"last_acked_sequence": 1})
        harness.given_messages(10)
        with pytest.raises(Unprocessable) as refused:
            await api.ask(BOB, request_line, {"last_acked_sequence": 11})
        assert refused.value.details == {"reason": "invalid_sequence", "current_sequence": 10}
        assert harness.store.watermarks == {}

    simulate(refuse)


@pytest.mark.parametrize("value", [0, -1, 2**53, 4.0, "4", True, None])
def test_a_watermark_is_a_sequence(value: object) -> None:
    async def refused(harness: DurabilityHarness) -> None:
        harness.given_messages(10)
        with pytest.raises(ValidationFailed) as error:
            await ChatApiHarness(harness).ask(BOB, BOTH[0], {"last_acked_sequence": value})
        assert field_of(error.value)[0] == "last_acked_sequence"

    simulate(refused)


async def test_below_the_first_message_there_is_nothing_to_acknowledge(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.put_tombstone(1)
    harness.put_message(2)
    harness.set_counter(CHAT, 2, published=2)
    answer = await api.data(BOB, BOTH[0], {"last_acked_sequence": 1})
    assert answer == {"chat_id": CHAT, "last_acked_sequence": 0, "updated_at": None}


# --- one's own --------------------------------------------------------------------------------------------------------


async def test_the_state_of_ones_chats_says_how_much_is_pending(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    chat_id, other = await api.group(ANN, BOB), await api.group(ANN, BOB)
    for number in range(3):
        await api.send(number, chat_id=chat_id)
    acked = await api.data(BOB, f"PATCH /delivery-state/{chat_id}", {"last_acked_sequence": 2})
    states = {state["chat_id"]: state for state in await api.data(BOB, "GET /delivery-state")}
    assert sorted(states) == sorted([chat_id, other])
    assert states[chat_id] == {
        "chat_id": chat_id,
        "last_acked_sequence": 2,
        "current_sequence": 3,
        "pending_ack_count": 1,
        "unread_count": 1,
        "updated_at": acked["updated_at"],
    }
    assert states[other]["updated_at"] is None
    assert (states[other]["current_sequence"], states[other]["pending_ack_count"]) == (0, 0)


async def test_chats_of_other_users_and_chats_that_do_not_exist_are_left_out_of_the_state(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    theirs, ours = await api.group(ANN, CID), await api.group(ANN, BOB)
    states = await api.data(BOB, f"GET /delivery-state?chat_ids={theirs},{ours},chat_none,,%20,{ours},{CHAT}")
    assert [state["chat_id"] for state in states] == [ours, CHAT]
    assert await api.data(EVE, f"GET /delivery-state?chat_ids={theirs}") == []
    assert await api.data(EVE, "GET /delivery-state?chat_ids=") == []


async def test_a_removed_member_sees_no_state_although_the_index_still_has_them(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    chat_id = await api.group(ANN, BOB)
    lagging = harness.store.memberships_of(BOB)
    harness.remove(BOB, chat_id=chat_id)
    harness.store.memberships_of = lambda user_id: lagging  # type: ignore[method-assign]
    assert await api.data(BOB, "GET /delivery-state") == []


def test_each_chat_is_asked_about_once_and_what_is_no_id_never() -> None:
    assert check_chat_ids("chat_2,chat_1,chat_2,,a b,chat_1\n,ä") == ["chat_2", "chat_1"]
    assert check_chat_ids(None) is None


async def test_fifty_chats_may_be_named_and_no_more(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    fifty = ",".join(f"chat_{number}" for number in range(50))
    assert [state["chat_id"] for state in await api.data(BOB, f"GET /delivery-state?chat_ids={fifty}")] == [CHAT]
    with pytest.raises(ValidationFailed) as refused:
        await api.ask(BOB, f"GET /delivery-state?chat_ids={fifty},chat_50")
    assert field_of(refused.value) == ("chat_ids", "TOO_LONG")


async def test_all_chats_of_a_busy_user_are_shown(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    for number in range(2 * limits.LOOKUP_KEYS_MAX + 1):
        harness.add_chat(f"chat_{number:03d}", (ANN, BOB))
        harness.store.index_member(f"chat_{number:03d}", BOB)
        harness.store.put_watermark(BOB, f"chat_{number:03d}", number + 1)
    states = await api.data(BOB, "GET /delivery-state")
    assert [state["last_acked_sequence"] for state in states] == list(range(1, 2 * limits.LOOKUP_KEYS_MAX + 2))


# --- of a message -----------------------------------------------------------------------------------------------------


async def test_the_sender_and_every_member_whose_watermark_reaches_it_have_received_a_message(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(5)  # of Ann
    harness.put_message(6, sender_id=CID)
    harness.set_counter(CHAT, 6, published=6)
    harness.store.put_watermark(BOB, CHAT, 5, harness.now_ms())
    newest = await api.data(BOB, f"GET /chats/{CHAT}/delivery-status")
    assert (newest["chat_id"], newest["chat_type"], newest["member_count"]) == (CHAT, "group", 3)
    assert newest["delivery_summary"] == {
        "sequence": 6,
        "delivered_count": 1,
        "pending_count": 2,
        "all_delivered": False,
    }
    states = [(each["user_id"], each["display_name"], each["last_acked_sequence"]) for each in newest["members"]]
    assert states == [(ANN, "Ann", 0), (BOB, "Bob", 5), (CID, "Cid", 0)]
    assert [each["updated_at"] is None for each in newest["members"]] == [True, False, True]
    fifth = await api.data(BOB, f"GET /chats/{CHAT}/delivery-status?for_sequence=5")
    assert fifth["delivery_summary"]["delivered_count"] == 2
    harness.store.put_watermark(CID, CHAT, 5, harness.now_ms())
    fifth = await api.data(BOB, f"GET /chats/{CHAT}/delivery-status?for_sequence=5")
    assert fifth["delivery_summary"] == {
        "sequence": 5,
        "delivered_count": 3,
        "pending_count": 0,
        "all_delivered": True,
    }


async def test_only_current_members_count_in_the_status(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(5)
    harness.store.put_watermark(DAN, CHAT, 5, harness.now_ms())
    await api.ask(ANN, f"DELETE /chats/{CHAT}/members/{CID}")
    status = await api.data(BOB, f"GET /chats/{CHAT}/delivery-status")
    assert [each["user_id"] for each in status["members"]] == [ANN, BOB]
    assert status["delivery_summary"]["pending_count"] == 1


async def test_in_an_empty_chat_nothing_is_pending(harness: DurabilityHarness) -> None:
    status = await ChatApiHarness(harness).data(BOB, f"GET /chats/{CHAT}/delivery-status")
    assert (status["delivery_summary"]["sequence"], status["delivery_summary"]["all_delivered"]) == (0, True)


async def test_R3_the_pages_of_a_status_are_about_one_message_and_sum_up_everybody(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(5)
    reply = await api.ask(BOB, f"GET /chats/{CHAT}/delivery-status?limit=2")
    assert reply.pagination is not None
    await api.send(1)
    cursor = reply.pagination.next_cursor
    rest = await api.ask(BOB, f"GET /chats/{CHAT}/delivery-status?limit=2&cursor={cursor}")
    assert [each["user_id"] for page in (reply, rest) for each in page.data["members"]] == [ANN, BOB, CID]
    assert rest.data["delivery_summary"] == reply.data["delivery_summary"]
    assert reply.data["delivery_summary"] | {"sequence": 5} == reply.data["delivery_summary"]
    with pytest.raises(ValidationFailed) as refused:
        await api.ask(BOB, f"GET /chats/{CHAT}/delivery-status?cursor={cursor}&for_sequence=4")
    assert field_of(refused.value) == ("for_sequence", "MISMATCH")
    with pytest.raises(BadRequest):
        await api.ask(CID, f"GET /chats/{CHAT}/delivery-status?cursor={cursor}")
