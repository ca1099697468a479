"""One partition, record by record: order, attempts, dead letters, and what a commit may and may not pass.

The same promises for records that are handled together are in `test_runs`.
"""

import asyncio

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.domain.events import BadEvent
from seriatim.ports.event_log import Fenced
from tests.unit.fanout.fakes import FixedClock, let_everything_run, until
from tests.unit.fanout.worker_harness import WorkerHarness

pytestmark = pytest.mark.usefixtures("one_by_one")


@pytest.fixture
def harness() -> WorkerHarness:
    return WorkerHarness()


# --- order and commits --------------------------------------------------------------------------------------------


async def test_records_are_handled_one_after_another_in_order(harness: WorkerHarness) -> None:
    release = harness.hold(0)
    async with harness.running():
        harness.enqueue(0, 1, 2)
        await let_everything_run()
        assert harness.attempts == [0]
        release.set()
        await until(lambda: len(harness.done) == 3)
    assert harness.done == [0, 1, 2]


async def test_a_drained_backlog_is_committed_as_the_next_unhandled_offset(harness: WorkerHarness) -> None:
    async with harness.running():
        harness.enqueue(5, 6)
        await until(lambda: harness.reader.commits() != [])
    assert harness.reader.calls_made == [("handled", 5), ("handled", 6), ("commit", 7)]


async def test_nothing_is_committed_while_the_first_record_is_in_hand(harness: WorkerHarness) -> None:
    harness.hold(0)
    async with harness.running():
        harness.enqueue(0, 1)
        await let_everything_run()
        assert harness.reader.commits() == []


async def test_steady_load_is_committed_now_and_then(harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_RECORDS_MAX", 2)
    harness.hold(5)
    async with harness.running():
        harness.enqueue(0, 1, 2, 3, 4, 5)
        await until(lambda: 5 in harness.attempts)
    assert harness.reader.commits() == [2, 4]


async def test_an_idle_partition_commits_nothing(harness: WorkerHarness) -> None:
    async with harness.running():
        await let_everything_run()
    assert harness.reader.calls_made == []


async def test_a_failed_commit_is_tried_again_without_a_new_record(harness: WorkerHarness) -> None:
    harness.reader.errors = [OutcomeUnknown("commit"), OutcomeUnknown("commit")]
    async with harness.running():
        harness.enqueue(0)
        await until(lambda: harness.reader.commits() == [1])
    assert harness.observer.commit_failures == 2
    assert harness.attempts == [0]


async def test_a_commit_without_an_answer_cannot_lower_the_mark_for_good_when_it_arrives_late(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_UNCONFIRMED_S", 0.0)
    harness.reader.errors = [OutcomeUnknown("commit")]  # it may be applied now, or after the next one
    async with harness.running():
        harness.enqueue(0)
        await until(lambda: len(harness.reader.commits()) == 2)
        await let_everything_run()
    assert harness.reader.commits() == [1, 1], "once to make up for the failure, once to be sure, and then no more"


async def test_a_failing_commit_does_not_keep_new_records_waiting(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_RETRY_S", 3600.0)
    harness.reader.errors = [OutcomeUnknown("commit")]
    async with harness.running():
        harness.enqueue(0)
        await until(lambda: harness.observer.commit_failures == 1)
        harness.enqueue(1)
        await until(lambda: harness.reader.commits() == [2])


async def test_a_fenced_commit_forgets_the_partition_silently(harness: WorkerHarness) -> None:
    harness.reader.errors = [Fenced()]
    async with harness.running() as task:
        harness.enqueue(0)
        await until(task.done)
        harness.enqueue(1)
        await let_everything_run()
    assert task.exception() is None
    assert (harness.done, harness.reader.commits(), harness.observer.commit_failures) == ([0], [], 0)


# --- back-pressure ------------------------------------------------------------------------------------------------


async def test_a_long_backlog_pauses_its_partition_until_it_is_drained(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BACKLOG_PAUSE_RECORDS", 3)
    async with harness.running():
        harness.enqueue(0, 1, 2, 3)
        await until(lambda: ("resume", 0) in harness.reader.calls_made)
    assert harness.reader.calls_made[0] == ("pause", 0)
    assert harness.reader.calls_made.index(("resume", 0)) > harness.reader.calls_made.index(("handled", 3))


async def test_a_short_backlog_pauses_nothing(harness: WorkerHarness) -> None:
    async with harness.running():
        harness.enqueue(0, 1)
        await until(lambda: harness.reader.commits() == [2])
    assert ("pause", 0) not in harness.reader.calls_made


async def test_a_stopped_worker_takes_nothing_in(harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKLOG_PAUSE_RECORDS", 1)
    harness.worker.stop()
    harness.enqueue(0)
    async with harness.running() as task:
        await until(task.done)
    assert (harness.attempts, harness.reader.calls_made) == ([], [])


# --- S35: records that cannot be handled --------------------------------------------------------------------------


async def test_s35_a_malformed_record_becomes_a_dead_letter_at_its_first_attempt_and_the_partition_flows(
    harness: WorkerHarness,
) -> None:
    harness.fails = lambda offset, attempt: BadEvent("bad JSON") if offset == 0 else None
    async with harness.running():
        harness.enqueue(0, 1)
        await until(lambda: harness.reader.commits() == [2])
    assert harness.attempts == [0, 1]
    [dead_letter] = harness.dead_letters.written
    assert (dead_letter.record.offset, dead_letter.attempts, dead_letter.reason) == (0, 1, "BadEvent: bad JSON")
    assert (dead_letter.consumer_group, dead_letter.consumer_id) == ("fanout-workers", "fanout-1")
    assert dead_letter.failed_at_ms == FixedClock().now_ms()


async def test_s35_a_poison_record_becomes_a_dead_letter_after_three_attempts_and_the_partition_flows(
    harness: WorkerHarness,
) -> None:
    harness.fails = lambda offset, attempt: ValueError("ours") if offset == 0 else None
    async with harness.running():
        harness.enqueue(0, 1)
        await until(lambda: harness.reader.commits() == [2])
    assert harness.attempts == [0, 0, 0, 1]
    [dead_letter] = harness.dead_letters.written
    assert (dead_letter.attempts, dead_letter.reason) == (3, "ValueError: ours")


async def test_s35_a_bug_that_passes_costs_no_dead_letter(harness: WorkerHarness) -> None:
    harness.fails = lambda offset, attempt: ValueError("moody") if attempt < 3 else None
    async with harness.running():
        harness.enqueue(0)
        await until(lambda: harness.reader.commits() == [1])
    assert (harness.dead_letters.written, harness.done) == ([], [0])


async def test_h12_a_record_that_failed_is_tried_again_before_the_next_and_never_passed(harness: WorkerHarness) -> None:
    harness.fails = lambda offset, attempt: ValueError("once") if (offset, attempt) == (1, 1) else None
    async with harness.running():
        harness.enqueue(0, 1, 2)
        await until(lambda: harness.reader.commits() == [3])
    assert harness.attempts == [0, 1, 1, 2]
    assert harness.done == [0, 1, 2]


async def test_a_reason_that_no_encoder_accepts_still_makes_a_writable_dead_letter(harness: WorkerHarness) -> None:
    harness.fails = lambda offset, attempt: BadEvent("\ud800" + "x" * 5000)
    async with harness.running():
        harness.enqueue(0)
        await until(lambda: harness.dead_letters.written != [])
    reason = harness.dead_letters.written[0].reason
    assert reason.encode()
    assert len(reason) <= limits.DEAD_LETTER_REASON_CHARS_MAX


# --- H13: the dead letter itself cannot be written --------------------------------------------------------------------


async def test_h13_without_its_dead_letter_a_record_is_not_passed_and_the_operator_is_paged(
    harness: WorkerHarness,
) -> None:
    harness.fails = lambda offset, attempt: BadEvent("bad") if offset == 1 else None
    harness.dead_letters.down = True
    async with harness.running():
        harness.enqueue(0, 1, 2)
        await until(lambda: len(harness.observer.pages) > 3)
        assert harness.done == [0]
        assert all(offset <= 1 for offset in harness.reader.commits())
        assert harness.reader.calls_made.count(("pause", 0)) == 1


async def test_h13_once_the_dead_letter_is_written_the_partition_goes_on(harness: WorkerHarness) -> None:
    harness.fails = lambda offset, attempt: BadEvent("bad") if offset == 0 else None
    harness.dead_letters.down = True
    async with harness.running():
        harness.enqueue(0, 1)
        await until(lambda: harness.observer.pages != [])
        harness.dead_letters.down = False
        await until(lambda: harness.reader.commits() == [2])
    assert [dead_letter.record.offset for dead_letter in harness.dead_letters.written] == [0]
    assert (harness.done, harness.observer.dead_letters, harness.attempts) == ([1], 1, [0, 1])
    assert harness.reader.calls_made[-1] == ("resume", 0)


async def test_h13_a_partition_that_waits_for_its_dead_letter_lets_go_when_it_is_revoked(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DEAD_LETTER_RETRY_S", 3600.0)
    monkeypatch.setattr(limits, "DEAD_LETTER_RETRY_MAX_S", 3600.0)
    harness.fails = lambda offset, attempt: BadEvent("bad") if offset == 1 else None
    harness.dead_letters.down = True
    async with harness.running() as task:
        harness.enqueue(0, 1, 2)
        await until(lambda: harness.observer.pages != [])
        harness.worker.stop()
        await until(task.done)
    assert harness.reader.commits() == [1]
    assert harness.done == [0]


# --- S34: stopping in the middle ----------------------------------------------------------------------------------


async def test_s34_a_stop_in_mid_batch_finishes_the_record_in_hand_and_commits_behind_it(
    harness: WorkerHarness,
) -> None:
    release = harness.hold(1)
    async with harness.running() as task:
        harness.enqueue(0, 1, 2, 3)
        await until(lambda: 1 in harness.attempts)
        harness.worker.stop()
        release.set()
        await until(task.done)
    assert harness.done == [0, 1]
    assert harness.reader.commits() == [2]


async def test_s34_a_lost_partition_is_not_committed_paused_or_resumed(harness: WorkerHarness) -> None:
    release = harness.hold(1)
    async with harness.running() as task:
        harness.enqueue(0, 1, 2)
        await until(lambda: 1 in harness.attempts)
        harness.worker.abandon()
        release.set()
        await until(task.done)
    assert harness.done == [0, 1]
    assert [what for what, _ in harness.reader.calls_made if what != "handled"] == []


async def test_s34_a_stop_between_two_attempts_leaves_the_record_to_the_next_owner(harness: WorkerHarness) -> None:
    def fail_and_stop(offset: int, attempt: int) -> Exception | None:
        if offset == 0:
            return None
        harness.worker.stop()
        return ValueError("ours")

    harness.fails = fail_and_stop
    async with harness.running() as task:
        harness.enqueue(0, 1)
        await until(task.done)
    assert (harness.reader.commits(), harness.dead_letters.written) == ([1], [])


async def test_a_stop_during_a_commit_ends_the_worker(harness: WorkerHarness) -> None:
    harness.reader.gate = asyncio.Event()
    async with harness.running() as task:
        harness.enqueue(0)
        await until(lambda: harness.done == [0])
        await let_everything_run()
        harness.worker.stop()
        harness.reader.gate.set()
        await until(task.done)
    assert harness.reader.commits() == [1]


async def test_a_last_commit_that_fails_is_tried_once_more_and_then_left(harness: WorkerHarness) -> None:
    release = harness.hold(0)
    harness.reader.errors = [OutcomeUnknown("commit")] * 5
    async with harness.running() as task:
        harness.enqueue(0)
        await until(lambda: harness.attempts == [0])
        harness.worker.stop()
        release.set()
        await until(task.done)
    assert task.exception() is None
    assert harness.observer.commit_failures == 2


async def test_a_cancelled_worker_commits_nothing_and_stays_cancelled(harness: WorkerHarness) -> None:
    harness.hold(1)
    async with harness.running() as task:
        harness.enqueue(0, 1)
        await until(lambda: 1 in harness.attempts)
        task.cancel()
        await until(task.done)
    assert task.cancelled()
    assert (harness.reader.commits(), harness.dead_letters.written) == ([], [])
