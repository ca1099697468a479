"""No user is in more chats than a list can hold: refused when a chat is made and when a member is added."""

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import AlreadyAMember, InvalidOperation
from tests.support.durability_harness import ANN, BOB, CHAT, CID, EVE, DurabilityHarness
from tests.unit.api.chat_api_harness import ChatApiHarness

MAX = 3  # Ann, Bob and Cid are in one chat to begin with


def _harness(harness: DurabilityHarness) -> ChatApiHarness:
    for user_id in (ANN, BOB, CID):
        harness.store.index_member(CHAT, user_id)
    return ChatApiHarness(harness)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHATS_PER_USER_MAX", MAX)


async def _group(api: ChatApiHarness, owner: str, *others: str) -> str:
    data = await api.data(owner, "POST /chats", {"type": "group", "member_ids": list(others)})
    assert isinstance(data["chat_id"], str)
    return data["chat_id"]


async def test_a_chat_is_refused_when_any_of_its_members_would_be_in_too_many(harness: DurabilityHarness) -> None:
    api = _harness(harness)
    for _ in range(MAX - 1):
        await _group(api, ANN, CID)
    for owner, others in ((ANN, [BOB]), (BOB, [ANN, CID])):
        with pytest.raises(InvalidOperation) as refused:
            await api.ask(owner, "POST /chats", {"type": "group", "member_ids": others})
        assert refused.value.details == {
            "reason": "too_many_chats",
            "max_chats_per_user": MAX,
            "user_ids": [each for each in (owner, *others) if each != BOB],
        }
    with pytest.raises(InvalidOperation):
        await api.ask(BOB, "POST /chats", {"type": "direct", "member_ids": [ANN]})
    await _group(api, BOB, EVE)


async def test_the_direct_chat_that_a_pair_has_is_found_however_many_they_are_in(harness: DurabilityHarness) -> None:
    api = _harness(harness)
    direct = await api.data(ANN, "POST /chats", {"type": "direct", "member_ids": [BOB]})
    await _group(api, ANN, CID)
    again = await api.ask(ANN, "POST /chats", {"type": "direct", "member_ids": [BOB]})
    assert (again.status, again.data["chat_id"]) == (200, direct["chat_id"])
    assert (await api.ask(BOB, "POST /chats", {"type": "direct", "member_ids": [ANN]})).status == 200


async def test_a_member_is_not_added_beyond_the_limit_and_is_once_there_is_room(harness: DurabilityHarness) -> None:
    api = _harness(harness)
    left = await _group(api, EVE, BOB)
    await _group(api, BOB, CID)
    mine = await _group(api, ANN, EVE)
    with pytest.raises(InvalidOperation) as refused:
        await api.ask(ANN, f"POST /chats/{mine}/members", {"user_id": BOB})
    assert refused.value.details["user_ids"] == [BOB]
    with pytest.raises(AlreadyAMember):
        await api.ask(ANN, f"POST /chats/{CHAT}/members", {"user_id": BOB})
    await api.ask(BOB, f"POST /chats/{left}/leave")
    assert (await api.ask(ANN, f"POST /chats/{mine}/members", {"user_id": BOB})).status == 201
