"""The table of docs/spec/data.md#accepting-a-message, row by row, and how cancelled transactions are read."""

from seriatim.domain.chat import Role
from seriatim.domain.errors import InvalidMessage, NotAMember
from seriatim.domain.message import Draft, Message, Sealed, content_digest
from seriatim.durability.dedup import CancellationOutcome, Fresh, Hit, Refusal, judge, judge_cancelled
from seriatim.ports.message_log import Cancelled, Entry, Key, KeyTaken, Lookup, SenderGone, SlotTaken
from tests.support.durability_harness import ANN, BOB, CHAT, CID, draft

NOW_S = 1_000_000


def test_an_own_key_of_a_member_is_a_hit_with_the_first_answer() -> None:
    verdict = _judge(draft(1), key=_key(1, ANN), members=[ANN])
    assert isinstance(verdict, Hit)
    receipt = verdict.receipt
    assert (receipt.message_id, receipt.sequence, receipt.created_at) == ("msg_1", 41, "2026-01-30T14:30:00.000Z")
    assert (receipt.deduplicated, receipt.content_differs) == (True, False)


def test_an_own_key_is_a_hit_even_after_the_sender_was_removed() -> None:
    assert isinstance(_judge(draft(1), key=_key(1, ANN), members=[]), Hit)


def test_an_own_key_with_another_text_is_a_hit_that_says_so() -> None:
    verdict = _judge(draft(1, "changed"), key=_key(1, ANN), members=[ANN])
    assert isinstance(verdict, Hit)
    assert verdict.receipt.content_differs


def test_another_members_key_refuses_the_id_for_good() -> None:
    verdict = _judge(draft(1, sender_id=BOB), key=_key(1, ANN), members=[BOB])
    assert isinstance(verdict, Refusal)
    assert isinstance(verdict.error, InvalidMessage)
    assert not verdict.error.retryable
    assert verdict.error.details == {"field": "client_message_id", "reason": "client_message_id_in_use"}


def test_another_ones_key_tells_an_outsider_only_that_he_is_one() -> None:
    with_key = _judge(draft(1, sender_id=BOB), key=_key(1, ANN), members=[])
    without = _judge(draft(1, sender_id=BOB), key=None, members=[])
    assert isinstance(with_key, Refusal)
    assert isinstance(without, Refusal)
    assert isinstance(with_key.error, NotAMember)
    assert with_key.error.message == without.error.message


def test_no_key_and_no_membership_is_not_a_member() -> None:
    verdict = _judge(draft(1), key=None, members=[BOB])
    assert isinstance(verdict, Refusal)
    assert isinstance(verdict.error, NotAMember)


def test_no_key_and_a_membership_is_fresh() -> None:
    assert isinstance(_judge(draft(1), key=None, members=[ANN]), Fresh)


def test_a_key_counts_until_the_second_before_it_expires() -> None:
    assert isinstance(_judge(draft(1), key=_key(1, ANN, expires_at_s=NOW_S + 1), members=[ANN]), Hit)


def test_an_expired_key_is_absent() -> None:
    expired = _key(1, ANN, expires_at_s=NOW_S)
    assert isinstance(_judge(draft(1), key=expired, members=[ANN]), Fresh)
    outsider = _judge(draft(1, sender_id=BOB), key=expired, members=[])
    assert isinstance(outsider, Refusal)
    assert isinstance(outsider.error, NotAMember)


def test_a_taken_key_settles_only_the_draft_at_its_index() -> None:
    outcome = _cancelled([draft(1), draft(2), draft(3)], KeyTaken(1, _key(2, ANN)))
    assert list(outcome.settled) == [1]
    assert isinstance(outcome.settled[1], Hit)
    assert (outcome.lost_slots, outcome.collisions) == ((), ())


def test_a_taken_slot_settles_no_draft_and_loses_the_slot_at_its_index() -> None:
    outcome = _cancelled([draft(1), draft(2)], SlotTaken(1, _tombstone(11)))
    assert outcome == CancellationOutcome({}, (11,), ())


def test_a_slot_taken_by_a_message_is_a_collision() -> None:
    foreign = _message(11, draft(9))
    outcome = _cancelled([draft(1), draft(2)], SlotTaken(1, foreign))
    assert outcome == CancellationOutcome({}, (11,), (foreign,))


def test_a_removed_sender_loses_every_draft_and_no_other_sender_does() -> None:
    given = [draft(1, sender_id=BOB), draft(2, sender_id=ANN), draft(3, sender_id=BOB)]
    outcome = _cancelled(given, SenderGone(BOB))
    assert list(outcome.settled) == [0, 2]
    assert all(
        isinstance(verdict, Refusal) and isinstance(verdict.error, NotAMember) for verdict in outcome.settled.values()
    )


def test_mixed_causes_are_each_read_by_their_own_index() -> None:
    given = [draft(1), draft(2, sender_id=BOB), draft(3, sender_id=CID), draft(4), draft(5)]
    outcome = _cancelled(
        given,
        KeyTaken(0, _key(1, ANN)),
        SlotTaken(0, _tombstone(10)),
        SlotTaken(3, _message(13, draft(9))),
        KeyTaken(4, _key(5, BOB)),
        SenderGone(CID),
    )
    kinds = {index: type(verdict) for index, verdict in sorted(outcome.settled.items())}
    assert kinds == {0: Hit, 2: Refusal, 4: Refusal}
    assert isinstance(_error(outcome, 2), NotAMember)
    assert isinstance(_error(outcome, 4), InvalidMessage)
    assert outcome.lost_slots == (10, 13)
    assert [message.sequence for message in outcome.collisions] == [13]


def test_a_removed_senders_own_key_still_answers_truthfully() -> None:
    outcome = _cancelled([draft(1, sender_id=BOB)], SenderGone(BOB), KeyTaken(0, _key(1, BOB)))
    assert isinstance(outcome.settled[0], Hit)


def test_a_removed_sender_learns_nothing_of_anothers_key() -> None:
    outcome = _cancelled([draft(1, sender_id=BOB)], KeyTaken(0, _key(1, ANN)), SenderGone(BOB))
    assert isinstance(_error(outcome, 0), NotAMember)


def _judge(given: Draft, *, key: Key | None, members: list[str]) -> Fresh | Hit | Refusal:
    found = Lookup(
        keys={} if key is None else {key.client_message_id: key},
        roles=dict.fromkeys(members, Role.MEMBER),
        counter=None,
    )
    return judge(given, content_digest(given.content), found, NOW_S)


def _cancelled(given: list[Draft], *causes: KeyTaken | SlotTaken | SenderGone) -> CancellationOutcome:
    """The drafts were to go to the slots 10, 11, 12 ..."""
    entries = [
        Entry(message=_message(10 + index, each), content_sha256="", expires_at_s=0) for index, each in enumerate(given)
    ]
    return judge_cancelled(Cancelled(causes), entries, [(each, content_digest(each.content)) for each in given])


def _error(outcome: CancellationOutcome, index: int) -> Exception:
    verdict = outcome.settled[index]
    assert isinstance(verdict, Refusal)
    return verdict.error


def _key(number: int, sender_id: str, *, expires_at_s: int = NOW_S + 100) -> Key:
    return Key(
        client_message_id=draft(number).client_message_id,
        message_id=f"msg_{number}",
        sequence=41,
        sender_id=sender_id,
        content_sha256=content_digest(draft(number).content),
        created_at="2026-01-30T14:30:00.000Z",
        expires_at_s=expires_at_s,
    )


def _message(sequence: int, given: Draft) -> Message:
    return Message(
        message_id=f"msg_{sequence}",
        chat_id=CHAT,
        sequence=sequence,
        sender_id=given.sender_id,
        client_message_id=given.client_message_id,
        content=given.content,
        content_type=given.content_type,
        created_at="2026-01-30T14:30:00.000Z",
    )


def _tombstone(sequence: int) -> Sealed:
    return Sealed(chat_id=CHAT, sequence=sequence, created_at="2026-01-30T14:30:00.000Z")
