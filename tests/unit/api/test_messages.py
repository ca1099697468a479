"""History over REST: every message once, in order, both ways, and nothing above a hole."""

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import BadRequest, NotAMember, OutcomeUnknown, ValidationFailed
from tests.support.durability_harness import ANN, BOB, CHAT, CID, EVE, DurabilityHarness, draft
from tests.support.scripted_wire import LOST_RESPONSE, with_before
from tests.support.virtual_time import simulate
from tests.unit.api.chat_api_harness import ChatApiHarness, Json, Reply, field_of

HISTORY = f"GET /chats/{CHAT}/messages"


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_F9_R3_R4_a_walk_over_250_messages_with_gaps_is_complete_while_new_ones_arrive(direction: str) -> None:
    async def walk(harness: DurabilityHarness) -> None:
        api = ChatApiHarness(harness)
        there = _with_gaps(harness, 300)
        assert len(there) == 250
        reply = await api.ask(BOB, f"{HISTORY}?limit=40&direction={direction}")
        seen = _sequences(reply)
        arrived = 0
        while reply.pagination is not None and reply.pagination.has_more:
            arrived += 1
            await api.send(arrived)
            reply = await api.ask(BOB, f"{HISTORY}?limit=40&cursor={reply.pagination.next_cursor}")
            seen += _sequences(reply)
        new = [301 + number for number in range(arrived)]
        assert arrived >= 6
        assert seen == (there[::-1] if direction == "backward" else there + new)

    simulate(walk)


@pytest.mark.parametrize(
    ("query", "shown", "more"),
    [
        ("", range(60, 10, -1), True),
        ("limit=3", (60, 59, 58), True),
        ("limit=100", range(60, 0, -1), False),
        ("limit=3&direction=forward", (1, 2, 3), True),
        ("limit=3&before_sequence=10", (9, 8, 7), True),
        ("limit=3&before_sequence=3", (2, 1), False),
        ("limit=2&before_sequence=3", (2, 1), False),
        ("limit=3&after_sequence=10", (60, 59, 58), True),
        ("limit=3&after_sequence=58", (60, 59), False),
        ("limit=3&after_sequence=10&direction=forward", (11, 12, 13), True),
        ("limit=3&after_sequence=57&direction=forward", (58, 59, 60), False),
        ("limit=9&after_sequence=10&before_sequence=14", (13, 12, 11), False),
        ("limit=9&after_sequence=10&before_sequence=14&direction=forward", (11, 12, 13), False),
        ("limit=3&after_sequence=10&before_sequence=14&direction=forward", (11, 12, 13), False),
        ("limit=2&after_sequence=10&before_sequence=14&direction=forward", (11, 12), True),
        ("after_sequence=10&before_sequence=11", (), False),
        ("after_sequence=10&before_sequence=11&direction=forward", (), False),
        ("after_sequence=10&before_sequence=5", (), False),
        ("before_sequence=0", (), False),
        ("before_sequence=1", (), False),
        ("before_sequence=0&direction=forward", (), False),
        ("after_sequence=60", (), False),
        ("after_sequence=60&direction=forward", (), False),
        ("after_sequence=1000&direction=forward", (), False),
        ("limit=2&before_sequence=1000", (60, 59), True),
        ("limit=1&after_sequence=0&before_sequence=9007199254740991", (60,), True),
        ("after_sequence=9007199254740991&direction=forward", (), False),
    ],
)
def test_bounds_are_exclusive_and_a_page_says_whether_there_is_more(query: str, shown: range, more: bool) -> None:
    async def page(harness: DurabilityHarness) -> None:
        api = ChatApiHarness(harness)
        harness.given_messages(60)
        reply = await api.ask(BOB, f"{HISTORY}?{query}")
        assert _sequences(reply) == list(shown)
        assert reply.pagination is not None
        assert reply.pagination.has_more is more
        assert (reply.pagination.next_cursor is not None) is more
        assert reply.pagination.prev_cursor is None

    simulate(page)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=1.0", "limit"),
        ("before_sequence=-1", "before_sequence"),
        ("after_sequence=x", "after_sequence"),
        ("direction=sideways", "direction"),
    ],
)
def test_a_parameter_out_of_its_range_is_refused_by_name(query: str, field: str) -> None:
    async def refused(harness: DurabilityHarness) -> None:
        with pytest.raises(ValidationFailed) as error:
            await ChatApiHarness(harness).ask(BOB, f"{HISTORY}?{query}")
        assert field_of(error.value)[0] == field

    simulate(refused)


# --- cursors ----------------------------------------------------------------------------------------------------------


async def test_a_cursor_keeps_the_bounds_of_the_first_page(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(30)
    for direction, expected in (
        ("backward", list(range(19, 10, -1))),
        ("forward", list(range(11, 20))),
    ):
        request = f"{HISTORY}?limit=4&after_sequence=10&before_sequence=20&direction={direction}"
        pages = await api.walk(BOB, request)
        assert [each["sequence"] for page in pages for each in page] == expected


async def test_the_previous_cursor_goes_the_other_way_from_where_this_page_began(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(30)
    first = await api.ask(BOB, f"{HISTORY}?limit=4&after_sequence=10&before_sequence=20")
    second = await _follow(api, first, "next")
    back = await _follow(api, second, "prev")
    assert [_sequences(each) for each in (first, second, back)] == [
        [19, 18, 17, 16],
        [15, 14, 13, 12],
        [16, 17, 18, 19],
    ]
    assert back.pagination is not None
    assert not back.pagination.has_more  # the bounds still hold
    assert _sequences(await _follow(api, back, "prev")) == [15, 14, 13, 12]
    end = await _follow(api, await _follow(api, first, "next"), "next")
    assert _sequences(end) == [11]
    assert _sequences(await _follow(api, end, "prev")) == [12, 13, 14, 15]


async def test_a_cursor_has_its_own_bounds_and_direction(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(30)
    reply = await api.ask(BOB, f"{HISTORY}?limit=4")
    assert reply.pagination is not None
    cursor = reply.pagination.next_cursor
    for extra, field in (
        ("before_sequence=9", "before_sequence"),
        ("after_sequence=0", "after_sequence"),
        ("direction=forward", "direction"),
    ):
        with pytest.raises(ValidationFailed) as refused:
            await api.ask(BOB, f"{HISTORY}?cursor={cursor}&{extra}")
        assert field_of(refused.value)[0] == field
    assert _sequences(await api.ask(BOB, f"{HISTORY}?limit=1&cursor={cursor}&direction=backward")) == [26]


async def test_a_cursor_is_of_use_only_to_its_owner_in_its_chat_at_its_endpoint(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(30)
    harness.add_chat("chat_2")
    reply = await api.ask(BOB, f"{HISTORY}?limit=4")
    members = await api.ask(BOB, f"GET /chats/{CHAT}/members?limit=1")
    assert reply.pagination is not None
    assert members.pagination is not None
    cursor = str(reply.pagination.next_cursor)
    forged = cursor[:10] + ("A" if cursor[10] != "A" else "B") + cursor[11:]
    for user_id, request in (
        (CID, f"{HISTORY}?cursor={cursor}"),
        (BOB, f"GET /chats/chat_2/messages?cursor={cursor}"),
        (BOB, f"{HISTORY}?cursor={forged}"),
        (BOB, f"{HISTORY}?cursor={members.pagination.next_cursor}"),
        (BOB, f"{HISTORY}?cursor="),
    ):
        with pytest.raises(BadRequest):
            await api.ask(user_id, request)


# --- what a page holds ------------------------------------------------------------------------------------------------


async def test_R22_rest_and_the_socket_agree_on_every_field(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    receipt = await api.send(1, sender_id=CID, content="Grüße 👋 \x01")
    [synced] = (await api.node.ingest.read(BOB, CHAT, after=0, limit=5, timeout_s=5)).messages
    [shown] = await api.data(BOB, HISTORY)
    assert shown.pop("sender") == {"user_id": CID, "display_name": "Cid"}
    assert shown == {
        "message_id": synced.message_id,
        "chat_id": CHAT,
        "sequence": synced.sequence,
        "sender_id": CID,
        "client_message_id": synced.client_message_id,
        "content": "Grüße 👋 \x01",
        "content_type": "text/plain",
        "created_at": synced.created_at,
    }
    assert (shown["message_id"], shown["sequence"]) == (receipt.message_id, receipt.sequence)
    assert shown["created_at"] == receipt.created_at


async def test_what_was_acknowledged_a_moment_ago_is_the_newest(harness: DurabilityHarness) -> None:
    api, other = ChatApiHarness(harness), ChatApiHarness(harness, "api-2")
    for number in range(1, 4):
        receipt = await api.send(number)
        assert _sequences(await api.ask(BOB, f"{HISTORY}?limit=1")) == [receipt.sequence]
        assert _sequences(await other.ask(BOB, f"{HISTORY}?limit=1")) == [receipt.sequence]


async def test_nothing_above_a_hole_is_shown_whatever_bounds_are_asked_for(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    for sequence in (1, 2, 4, 5, 6):
        harness.put_message(sequence)
    harness.set_counter(CHAT, 6, published=2)
    for query, shown in (
        ("", [2, 1]),
        ("direction=forward", [1, 2]),
        ("after_sequence=4&direction=forward", []),
        ("after_sequence=3&direction=forward", []),
        ("after_sequence=3", []),
        ("after_sequence=4&before_sequence=6", []),
    ):
        assert _sequences(await api.ask(BOB, f"{HISTORY}?{query}")) == shown, query


async def test_a_page_ends_before_it_grows_beyond_a_mebibyte_and_the_next_goes_on_there(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(100, content="\x01" * limits.CONTENT_BYTES_MAX)  # six characters each, once they are JSON
    for direction in ("backward", "forward"):
        reply = await api.ask(BOB, f"{HISTORY}?limit=100&direction={direction}")
        assert reply.pagination is not None
        assert reply.pagination.has_more
        assert 0.9 * limits.ANSWER_BYTES_MAX < len(reply.data) * 6 * limits.CONTENT_BYTES_MAX < limits.ANSWER_BYTES_MAX
        pages = await api.walk(BOB, f"{HISTORY}?limit=100&direction={direction}")
        sequences = [each["sequence"] for page in pages for each in page]
        assert sequences == (list(range(100, 0, -1)) if direction == "backward" else list(range(1, 101)))


async def test_a_long_run_of_tombstones_ends_a_page_early_and_loses_nothing(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    last = (limits.HISTORY_READS_MAX + 2) * limits.SYNC_SLOTS_MAX
    harness.put_message(1)
    for sequence in range(2, last):
        harness.put_tombstone(sequence)
    harness.put_message(last)
    harness.set_counter(CHAT, last, published=last)
    pages = await api.walk(BOB, f"{HISTORY}?limit=10&direction=forward")
    assert [each["sequence"] for page in pages for each in page] == [1, last]
    assert len(pages) > 1
    assert _sequences(await api.ask(BOB, f"{HISTORY}?limit=10")) == [last, 1]


async def test_a_sender_without_an_account_is_shown_without_a_name(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.put_message(1, sender_id="user_gone")
    harness.set_counter(CHAT, 1, published=1)
    [shown] = await api.data(BOB, HISTORY)
    assert shown["sender"] == {"user_id": "user_gone", "display_name": None}


# --- who may read -----------------------------------------------------------------------------------------------------


async def test_R12_F8_a_removed_member_loses_history_and_gets_it_back_whole_when_added_again(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(30)
    await api.ask(BOB, f"PATCH /delivery-state/{CHAT}", {"last_acked_sequence": 20})
    reply = await api.ask(BOB, f"{HISTORY}?limit=4")
    assert reply.pagination is not None
    await api.ask(ANN, f"DELETE /chats/{CHAT}/members/{BOB}")
    for query in ("", "?direction=forward", f"?cursor={reply.pagination.next_cursor}", "?before_sequence=0"):
        with pytest.raises(NotAMember):
            await api.ask(BOB, f"{HISTORY}{query}")
    assert isinstance(await api.node.failed(draft(999, sender_id=BOB)), NotAMember)
    await api.ask(ANN, f"POST /chats/{CHAT}/members", {"user_id": BOB})
    assert len((await api.ask(BOB, f"{HISTORY}?limit=100")).data) == 30
    [state] = await api.data(BOB, f"GET /delivery-state?chat_ids={CHAT}")
    assert state["last_acked_sequence"] == 20


async def test_a_member_who_is_removed_while_the_history_is_read_sees_none_of_it(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(30)
    for operation, query in (("read_back", ""), ("read", "?direction=forward")):
        if BOB not in harness.store.members(CHAT):
            await api.ask(ANN, f"POST /chats/{CHAT}/members", {"user_id": BOB})
        api.node.wire.on(operation, with_before(lambda: harness.remove(BOB)))
        with pytest.raises(NotAMember):
            await api.ask(BOB, f"{HISTORY}{query}")


async def test_a_failing_store_is_an_error_and_never_a_short_page(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(30)
    for operation, query in (("read_back", ""), ("read", "?direction=forward"), ("users", "")):
        api.node.wire.always(operation, LOST_RESPONSE)
        with pytest.raises(OutcomeUnknown):
            await api.ask(BOB, f"{HISTORY}{query}")
        api.node.wire.heal()


async def test_R2_an_outsiders_question_changes_nothing_and_is_answered_alike_everywhere(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    for sequence in (1, 3):
        harness.put_message(sequence, age_s=60)  # an old hole, which a member's reading would close
    harness.set_counter(CHAT, 3, published=1)
    for query in ("", "?direction=forward", "?after_sequence=1", "?before_sequence=1"):
        with pytest.raises(NotAMember):
            await api.ask(EVE, f"{HISTORY}{query}")
    assert harness.tombstones() == []


def _with_gaps(harness: DurabilityHarness, count: int) -> list[int]:
    """Every sixth slot holds a tombstone. Returns where messages are."""
    there = [sequence for sequence in range(1, count + 1) if sequence % 6]
    for sequence in range(1, count + 1):
        if sequence in there:
            harness.put_message(sequence)
        else:
            harness.put_tombstone(sequence)
    harness.set_counter(CHAT, count, published=count)
    return there


def _sequences(reply: Reply) -> list[Json]:
    return [each["sequence"] for each in reply.data]


async def _follow(api: ChatApiHarness, reply: Reply, which: str) -> Reply:
    assert reply.pagination is not None
    cursor = reply.pagination.next_cursor if which == "next" else reply.pagination.prev_cursor
    return await api.ask(BOB, f"{HISTORY}?limit=4&cursor={cursor}")
