"""One message by its id or sequence, and what stands around it; clocks may disagree about when it was."""

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import NotFound, ValidationFailed
from seriatim.domain.ids import ulid, ulid_ms
from seriatim.domain.message import Message
from seriatim.domain.times import iso
from tests.support.durability_harness import BOB, CHAT, DurabilityHarness, key_id
from tests.support.virtual_time import simulate
from tests.unit.api.chat_api_harness import ChatApiHarness

MESSAGES = f"GET /chats/{CHAT}/messages"


async def test_a_message_is_found_by_its_id_wherever_it_stands(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    ids = _given(harness, 400, every_s=7)
    for sequence in (1, 2, 3, 7, 100, 199, 200, 201, 399, 400):
        found = await api.data(BOB, f"{MESSAGES}/{ids[sequence]}")
        assert (found["sequence"], found["message_id"]) == (sequence, ids[sequence])
        assert found["sender"]["display_name"] == "Ann"


async def test_a_search_halves_and_does_not_read_everything(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    ids = _given(harness, 4000, every_s=7)
    api.node.wire.calls.clear()
    await api.ask(BOB, f"{MESSAGES}/{ids[1234]}")
    assert api.node.wire.count("read") < 20


async def test_a_message_is_found_although_clocks_disagree_by_seconds_and_slots_are_empty(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    ids = _given(harness, 300, every_s=1, skew_s=9, tombstones=range(50, 150))
    for sequence in (1, 2, 3, 48, 49, 150, 151, 152, 250, 299, 300):
        assert (await api.data(BOB, f"{MESSAGES}/{ids[sequence]}"))["sequence"] == sequence


async def test_a_message_is_found_although_its_id_and_its_time_differ_by_as_much_as_they_may(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    spread_ms = int(limits.FIND_SPREAD_S * 1000)
    at_ms = harness.now_ms() - 1_000_000
    for sequence, born_ms in enumerate((at_ms + spread_ms, at_ms, at_ms - spread_ms), start=1):
        harness.store.fill(
            Message(
                message_id=f"msg_{ulid(born_ms, sequence)}",
                chat_id=CHAT,
                sequence=sequence,
                sender_id="user_ann",
                client_message_id=key_id(sequence),
                content="text",
                content_type="text/plain",
                created_at=iso(at_ms),
            )
        )
    harness.set_counter(CHAT, 3, published=3)
    for message in harness.messages():
        assert (await api.data(BOB, f"{MESSAGES}/{message.message_id}"))["sequence"] == message.sequence


async def test_a_message_among_many_of_the_same_moment_is_found(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    ids = _given(harness, 1500, every_s=0)
    for sequence in (1, 750, 1500):
        assert (await api.data(BOB, f"{MESSAGES}/{ids[sequence]}"))["sequence"] == sequence


async def test_what_was_really_sent_is_found(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    receipt = await api.send(1)
    assert (await api.data(BOB, f"{MESSAGES}/{receipt.message_id}"))["sequence"] == 1
    assert (await api.data(BOB, f"{MESSAGES}/1"))["message_id"] == receipt.message_id


async def test_what_is_not_in_this_chat_is_not_found(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    ids = _given(harness, 30, every_s=7, tombstones=range(10, 12))
    harness.add_chat("chat_2")
    born = ulid_ms(ids[15].removeprefix("msg_"))
    assert born is not None
    foreign, early, late = (f"msg_{ulid(ms, 99)}" for ms in (born, 0, 2**48 - 1))
    for wanted in (foreign, early, late, "msg_1", "x", ids[15].removeprefix("msg_"), "10", "31", "0", "9" * 64):
        with pytest.raises(NotFound):
            await api.ask(BOB, f"{MESSAGES}/{wanted}")
    for wanted in (ids[15], "15"):
        with pytest.raises(NotFound):
            await api.ask(BOB, f"GET /chats/chat_2/messages/{wanted}")


async def test_nothing_above_a_hole_is_found(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    ids = _given(harness, 9, every_s=0, holes=(5,))
    for wanted in (ids[7], "7", "6"):
        with pytest.raises(NotFound):
            await api.ask(BOB, f"{MESSAGES}/{wanted}")
    around = await api.data(BOB, f"{MESSAGES}/around/7")
    assert (around["target_found"], [each["sequence"] for each in around["messages"]]) == (False, [1, 2, 3, 4])
    assert not around["has_more_after"]


@pytest.mark.parametrize(
    ("sequence", "context", "found", "shown", "before", "after"),
    [
        (10, 2, True, [8, 9, 10, 11, 12], True, True),
        (2, 2, True, [1, 2, 3, 4], False, True),
        (3, 2, True, [1, 2, 3, 4, 5], False, True),
        (19, 2, True, [17, 18, 19, 20], True, False),
        (20, 3, True, [17, 18, 19, 20], True, False),
        (14, 1, False, [13, 16], True, True),  # 14 and 15 hold no message
        (15, 2, False, [12, 13, 16, 17], True, True),
        (21, 2, False, [19, 20], True, False),
        (9007199254740991, 1, False, [20], True, False),
        (10, 50, True, [*range(1, 14), *range(16, 21)], False, False),
    ],
)
def test_around_a_sequence_stand_its_neighbours(
    sequence: int, context: int, found: bool, shown: list[int], before: bool, after: bool
) -> None:
    async def around(harness: DurabilityHarness) -> None:
        _given(harness, 20, every_s=1, tombstones=range(14, 16))
        data = await ChatApiHarness(harness).data(BOB, f"{MESSAGES}/around/{sequence}?context={context}")
        assert (data["target_sequence"], data["target_found"]) == (sequence, found)
        assert [each["sequence"] for each in data["messages"]] == shown
        assert (data["has_more_before"], data["has_more_after"]) == (before, after)

    simulate(around)


async def test_around_takes_25_on_each_side_by_default_and_at_most_50(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(200)
    assert len((await api.data(BOB, f"{MESSAGES}/around/100"))["messages"]) == 51
    for context in (0, 51):
        with pytest.raises(ValidationFailed):
            await api.ask(BOB, f"{MESSAGES}/around/100?context={context}")
    for sequence in ("0", "x", "-1", "1.5", "9007199254740992"):
        with pytest.raises(NotFound):
            await api.ask(BOB, f"{MESSAGES}/around/{sequence}")


async def test_what_is_too_much_for_one_answer_is_left_out_on_both_far_ends(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    harness.given_messages(101, content="\x01" * limits.CONTENT_BYTES_MAX)
    data = await api.data(BOB, f"{MESSAGES}/around/51?context=50")
    shown = [each["sequence"] for each in data["messages"]]
    assert shown == list(range(shown[0], shown[-1] + 1))
    assert abs((51 - shown[0]) - (shown[-1] - 51)) <= 1
    assert len(shown) > 35
    assert (data["has_more_before"], data["has_more_after"]) == (True, True)


async def test_one_message_that_was_left_out_on_one_end_is_more_on_that_end_and_not_on_the_other(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    large = "\x01" * limits.CONTENT_BYTES_MAX
    harness.given_messages(101, content=large)
    fit = len((await api.data(BOB, f"{MESSAGES}/around/51?context=50"))["messages"])
    harness.add_chat("chat_2")
    harness.given_messages(fit + 1, chat_id="chat_2", content=large)
    middle = (fit + 1) // 2
    for sequence, shown, more in (
        (middle + 1, range(2, fit + 2), (True, False)),
        (middle, range(1, fit + 1), (False, True)),
    ):
        data = await api.data(BOB, f"GET /chats/chat_2/messages/around/{sequence}?context=50")
        assert [each["sequence"] for each in data["messages"]] == list(shown)
        assert (data["has_more_before"], data["has_more_after"]) == more


def _given(
    harness: DurabilityHarness,
    count: int,
    *,
    every_s: int,
    skew_s: int = 0,
    tombstones: range = range(0),
    holes: tuple[int, ...] = (),
) -> dict[int, str]:
    """Messages with real ids; those of odd sequence come from a process whose clock is late. Returns the ids."""
    ids: dict[int, str] = {}
    start = harness.now_ms() - 10_000_000
    for sequence in range(1, count + 1):
        at_ms = start + sequence * every_s * 1000 - (skew_s * 1000 if sequence % 2 else 0)
        if sequence in holes:
            continue
        if sequence in tombstones:
            harness.put_tombstone(sequence)
            continue
        ids[sequence] = f"msg_{ulid(at_ms - 300, sequence)}"
        harness.store.fill(
            Message(
                message_id=ids[sequence],
                chat_id=CHAT,
                sequence=sequence,
                sender_id="user_ann",
                client_message_id=key_id(sequence),
                content="text",
                content_type="text/plain",
                created_at=iso(harness.now_ms() if holes else at_ms),
            )
        )
    harness.set_counter(CHAT, count, published=min(holes, default=count + 1) - 1)
    return ids
