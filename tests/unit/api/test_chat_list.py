"""The list of one's chats: newest activity first, every chat once, and only those one is in."""

import asyncio

import pytest

from seriatim.domain.errors import BadRequest, ValidationFailed
from tests.support.durability_harness import ANN, BOB, DurabilityHarness
from tests.support.virtual_time import simulate
from tests.unit.api.chat_api_harness import DAN, ChatApiHarness, field_of


async def test_the_list_shows_newest_activity_first_with_what_a_client_needs(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    quiet = await api.group(ANN, BOB, name="Quiet")
    await asyncio.sleep(1)
    pair = await api.direct(BOB, DAN)
    await asyncio.sleep(1)
    receipt = await api.send(1, chat_id=quiet, content="é" * 150)
    reply = await api.ask(BOB, "GET /chats")
    first, second = reply.data
    assert (first["chat_id"], second["chat_id"]) == (quiet, pair)
    assert first["last_message"] == {
        "message_id": receipt.message_id,
        "sequence": 1,
        "sender_id": ANN,
        "content_preview": "é" * 100,
        "created_at": receipt.created_at,
    }
    assert (first["pending_ack_count"], second["pending_ack_count"]) == (1, 0)
    assert "other_member" not in first
    assert second["other_member"] == {"user_id": DAN, "display_name": "Dan"}
    assert (first["my_membership"]["role"], second["last_message"]) == ("member", None)
    assert reply.pagination is not None
    assert not reply.pagination.has_more
    await api.ask(BOB, f"PATCH /delivery-state/{quiet}", {"last_acked_sequence": 1})
    assert [line["pending_ack_count"] for line in await api.data(BOB, "GET /chats")] == [0, 0]


async def test_R3_R4_the_pages_of_the_list_are_all_chats_once_in_order_and_lead_back(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    made = [await api.group(ANN, BOB) for _ in range(25)]
    for number, chat_id in enumerate(made[:10]):
        await api.send(number, chat_id=chat_id)
    everything = await api.data(ANN, "GET /chats?limit=100")
    pages = await api.walk(ANN, "GET /chats?limit=7")
    assert [len(page) for page in pages] == [7, 7, 7, 4]
    assert [line for page in pages for line in page] == everything
    assert sorted(line["chat_id"] for line in everything) == sorted(made)
    activity = [max(line["updated_at"], (line["last_message"] or line)["created_at"]) for line in everything]
    assert activity == sorted(activity, reverse=True)
    last = await api.ask(ANN, f"GET /chats?limit=7&cursor={await _cursor_to_page(api, 4)}")
    assert last.pagination is not None
    before = await api.ask(ANN, f"GET /chats?limit=7&cursor={last.pagination.prev_cursor}")
    assert before.data == pages[2]


async def test_chats_of_equal_activity_are_in_order_of_their_ids(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    for chat_id in ("chat_c", "chat_a", "chat_b"):
        harness.add_chat(chat_id, (ANN, BOB))
        harness.store.index_member(chat_id, ANN)
    pages = await api.walk(ANN, "GET /chats?limit=1")
    assert [line["chat_id"] for page in pages for line in page] == ["chat_a", "chat_b", "chat_c"]


async def test_updated_since_is_inclusive_and_a_cursor_keeps_it(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    times = []
    for _ in range(4):
        times.append((await api.data(ANN, "POST /chats", {"type": "group", "member_ids": [BOB]}))["updated_at"])
        await asyncio.sleep(1)
    request = f"GET /chats?limit=2&updated_since={times[1]}"
    pages = await api.walk(ANN, request)
    assert [line["updated_at"] for page in pages for line in page] == times[:0:-1]
    first = await api.ask(ANN, request)
    assert first.pagination is not None
    assert await api.data(ANN, f"{request}&cursor={first.pagination.next_cursor}") == pages[1]
    with pytest.raises(ValidationFailed) as refused:
        await api.ask(ANN, f"GET /chats?updated_since={times[0]}&cursor={first.pagination.next_cursor}")
    assert field_of(refused.value) == ("updated_since", "MISMATCH")


@pytest.mark.parametrize("text", ["yesterday", "2026-01-30", "2026-01-30T14:30:00", "1769783400000", ""])
def test_updated_since_is_a_time_with_an_offset(text: str) -> None:
    async def refused(harness: DurabilityHarness) -> None:
        with pytest.raises(ValidationFailed) as error:
            await ChatApiHarness(harness).ask(ANN, f"GET /chats?updated_since={text}")
        assert field_of(error.value) == ("updated_since", "INVALID_FORMAT")

    simulate(refused)


async def test_any_time_with_an_offset_is_understood_however_far_away(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    await api.group(ANN, BOB)
    for text, count in (
        ("0001-01-01T00:00:00%2B14:00", 1),
        ("9999-12-31T23:59:59-14:00", 0),
        ("2020-01-01T00:00Z", 1),
    ):
        assert len(await api.data(ANN, f"GET /chats?updated_since={text}")) == count


async def test_a_cursor_of_another_users_list_is_a_bad_request(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    for _ in range(2):
        await api.group(ANN, BOB)
    reply = await api.ask(ANN, "GET /chats?limit=1")
    assert reply.pagination is not None
    cursor = str(reply.pagination.next_cursor)
    for user_id, text in ((BOB, cursor), (ANN, cursor[:-2]), (ANN, "eyJ2IjoxfQ"), (ANN, ""), (ANN, "x" * 5000)):
        with pytest.raises(BadRequest):
            await api.ask(user_id, f"GET /chats?limit=1&cursor={text}")


async def test_a_chat_just_left_is_not_in_the_list_although_the_index_still_has_it(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    chat_id, other = await api.group(ANN, BOB), await api.group(ANN, BOB)
    lagging = harness.store.memberships_of(BOB)
    harness.remove(BOB, chat_id=chat_id)
    harness.store.memberships_of = lambda user_id: lagging  # type: ignore[method-assign]
    assert [line["chat_id"] for line in await api.data(BOB, "GET /chats")] == [other]


async def _cursor_to_page(api: ChatApiHarness, number: int) -> str:
    cursor = ""
    for _ in range(number - 1):
        reply = await api.ask(ANN, f"GET /chats?limit=7{cursor}")
        assert reply.pagination is not None
        cursor = f"&cursor={reply.pagination.next_cursor}"
    return cursor.removeprefix("&cursor=")
