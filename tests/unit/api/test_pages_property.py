"""R3 and R4 for any number of items and any size of page: all pages together are the full set, once, in order."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.durability_harness import ANN, BOB, CHAT, DurabilityHarness
from tests.support.virtual_time import simulate
from tests.unit.api.chat_api_harness import ChatApiHarness, Json

LIMITS = st.integers(1, 9)
BOUND = st.none() | st.integers(0, 25)
# What each slot of a chat holds, from 1 on: a message, or the tombstone of one that never came.
SLOTS = st.lists(st.booleans(), max_size=24)


@settings(deadline=None, max_examples=50)
@given(SLOTS, LIMITS, st.sampled_from(["backward", "forward"]), BOUND, BOUND)
def test_R3_R4_a_walk_through_any_part_of_a_history_shows_each_of_its_messages_once_in_order(
    slots: list[bool], limit: int, direction: str, before: int | None, after: int | None
) -> None:
    async def walk(harness: DurabilityHarness) -> None:
        api = ChatApiHarness(harness)
        there = _fill(harness, slots)
        bounds = [("before_sequence", before), ("after_sequence", after)]
        query = "".join([f"&{name}={value}" for name, value in bounds if value is not None])
        pages = await api.walk(BOB, f"GET /chats/{CHAT}/messages?limit={limit}&direction={direction}{query}")
        wanted = [each for each in there if (after or 0) < each and (before is None or each < before)]
        shown = [message["sequence"] for page in pages for message in page]
        assert shown == (wanted if direction == "forward" else wanted[::-1])
        assert all(len(page) <= limit for page in pages)

    simulate(walk)


@settings(deadline=None, max_examples=50)
@given(SLOTS, st.lists(LIMITS, min_size=1, max_size=30), st.sampled_from(["backward", "forward"]))
def test_a_walk_may_change_the_size_of_its_pages_and_turn_around_at_any_page(
    slots: list[bool], limits: list[int], direction: str
) -> None:
    async def walk(harness: DurabilityHarness) -> None:
        api = ChatApiHarness(harness)
        there = _fill(harness, slots)
        path = f"GET /chats/{CHAT}/messages"
        reply = await api.ask(BOB, f"{path}?limit={limits[0]}&direction={direction}")
        shown = [reply.data]
        for limit in limits[1:]:
            assert reply.pagination is not None
            if reply.pagination.next_cursor is None:
                break
            reply = await api.ask(BOB, f"{path}?limit={limit}&cursor={reply.pagination.next_cursor}")
            shown.append(reply.data)
        seen = _sequences(shown)
        assert seen == (there if direction == "forward" else there[::-1])[: len(seen)]
        assert reply.pagination is not None
        if reply.pagination.prev_cursor is not None:
            back = await api.walk(BOB, f"{path}?limit=3&cursor={reply.pagination.prev_cursor}")
            assert _sequences(back) == seen[: len(seen) - len(shown[-1])][::-1]

    simulate(walk)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 12), st.lists(st.integers(0, 11), max_size=8), LIMITS)
def test_R3_R4_the_pages_of_the_list_of_chats_are_all_chats_once(made: int, active: list[int], limit: int) -> None:
    async def walk(harness: DurabilityHarness) -> None:
        api = ChatApiHarness(harness)
        chat_ids = [await api.group(ANN, BOB) for _ in range(made)]
        for number, index in enumerate(active):
            if index < made:
                await api.send(number, chat_id=chat_ids[index])
        await _same_in_pages(api, "GET /chats", limit, lambda page: page)
        lines = await api.data(ANN, "GET /chats?limit=100")
        assert sorted(line["chat_id"] for line in lines) == sorted(chat_ids)

    simulate(walk)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 12), LIMITS)
def test_R3_R4_the_pages_of_members_and_of_who_received_what_are_all_members_once(others: int, limit: int) -> None:
    async def walk(harness: DurabilityHarness) -> None:
        api = ChatApiHarness(harness)
        people = [api.add_user(f"user_{number:02}") for number in range(others)]
        chat_id = await api.group(ANN, *people)
        await _same_in_pages(api, f"GET /chats/{chat_id}/members", limit, lambda page: page)
        await _same_in_pages(api, f"GET /chats/{chat_id}/delivery-status", limit, lambda page: page["members"])
        members = await api.data(ANN, f"GET /chats/{chat_id}/members")
        assert [member["user_id"] for member in members] == sorted([ANN, *people])

    simulate(walk)


async def _same_in_pages(api: ChatApiHarness, request: str, limit: int, items: Callable[[Json], list[Json]]) -> None:
    everything = items(await api.data(ANN, f"{request}?limit=100"))
    pages = await api.walk(ANN, f"{request}?limit={limit}")
    assert [item for page in pages for item in items(page)] == everything
    assert all(len(items(page)) == limit for page in pages[:-1])


def _fill(harness: DurabilityHarness, slots: list[bool]) -> list[int]:
    """Returns where messages are."""
    for sequence, kept in enumerate(slots, 1):
        if kept:
            harness.put_message(sequence)
        else:
            harness.put_tombstone(sequence)
    harness.set_counter(CHAT, len(slots), published=len(slots))
    return [sequence for sequence, kept in enumerate(slots, 1) if kept]


def _sequences(pages: list[Json]) -> list[int]:
    return [message["sequence"] for page in pages for message in page]
