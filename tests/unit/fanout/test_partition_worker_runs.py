"""One partition, several records at a time: what holds for single records holds for runs, and whom a failure hurts."""

import asyncio

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.domain.events import BadEvent
from seriatim.ports.event_log import Fenced
from tests.unit.fanout.fakes import P0, let_everything_run, until
from tests.unit.fanout.worker_harness import WorkerHarness

RUN = 3


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> WorkerHarness:
    monkeypatch.setattr(limits, "RUN_RECORDS_MAX", RUN)
    return WorkerHarness()


# --- order and commits --------------------------------------------------------------------------------------------


async def test_records_that_wait_are_handled_together_in_their_order_and_a_run_is_bounded(
    harness: WorkerHarness,
) -> None:
    harness.enqueue(0, 1, 2, 3, 4, 5, 6)
    async with harness.running():
        await until(lambda: harness.reader.commits() == [7])
    assert harness.runs == [[0, 1, 2], [3, 4, 5], [6]]
    assert harness.observer.offsets == [(P0, offset) for offset in range(7)]


async def test_no_run_is_begun_while_another_is_in_hand(harness: WorkerHarness) -> None:
    release = harness.hold(1)
    harness.enqueue(0, 1, 2, 3)
    async with harness.running():
        await let_everything_run()
        assert harness.runs == [[0, 1, 2]]
        release.set()
        await until(lambda: harness.done == [0, 1, 2, 3])


async def test_what_arrives_while_a_run_is_in_hand_is_neither_in_it_nor_passed_by_it(harness: WorkerHarness) -> None:
    release = harness.hold(1)
    async with harness.running():
        harness.enqueue(0, 1)
        await until(lambda: harness.runs == [[0, 1]])
        harness.enqueue(2)
        release.set()
        await until(lambda: harness.reader.commits() == [3])
    assert harness.runs == [[0, 1], [2]]


async def test_nothing_of_a_run_is_committed_before_all_of_it_is_handled(harness: WorkerHarness) -> None:
    release = harness.hold(7)
    harness.enqueue(5, 6, 7)
    async with harness.running():
        await let_everything_run()
        assert harness.reader.commits() == []
        release.set()
        await until(lambda: harness.reader.commits() != [])
    assert harness.reader.calls_made == [("handled", 5), ("handled", 6), ("handled", 7), ("commit", 8)]


async def test_a_run_never_exceeds_what_may_go_uncommitted(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_RECORDS_MAX", 5)
    harness.hold(10)
    harness.enqueue(*range(11))
    async with harness.running():
        await until(lambda: 10 in harness.attempts)
    assert harness.runs == [[0, 1, 2], [3, 4], [5, 6, 7], [8, 9], [10]]
    assert harness.reader.commits() == [5, 10]


async def test_a_limit_of_commits_below_that_of_runs_bounds_the_first_run_too(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_RECORDS_MAX", 2)
    harness.enqueue(0, 1, 2)
    async with harness.running():
        await until(lambda: harness.reader.commits() == [2, 3])
    assert harness.runs == [[0, 1], [2]]


async def test_commits_that_fail_do_not_make_the_next_runs_shorter(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_RECORDS_MAX", RUN)
    harness.reader.errors = [OutcomeUnknown("commit"), OutcomeUnknown("commit")]
    harness.enqueue(*range(9))
    async with harness.running():
        await until(lambda: harness.reader.commits() == [9])
    assert harness.runs == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


async def test_a_fenced_commit_behind_a_run_leaves_the_rest_to_the_new_owner(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_RECORDS_MAX", RUN)
    harness.reader.errors = [Fenced()]
    harness.enqueue(0, 1, 2, 3, 4)
    async with harness.running() as task:
        await until(task.done)
    assert task.exception() is None
    assert (harness.done, harness.reader.commits(), harness.observer.commit_failures) == ([0, 1, 2], [], 0)


# --- S34: stopping in the middle ----------------------------------------------------------------------------------


async def test_s34_a_stop_finishes_the_run_in_hand_commits_behind_it_and_begins_no_other(
    harness: WorkerHarness,
) -> None:
    release = harness.hold(1)
    harness.enqueue(0, 1, 2, 3)
    async with harness.running() as task:
        await until(lambda: 1 in harness.attempts)
        harness.worker.stop()
        release.set()
        await until(task.done)
    assert harness.done == [0, 1, 2]
    assert harness.reader.commits() == [3]


async def test_s34_a_partition_lost_in_the_middle_of_a_run_is_not_committed(harness: WorkerHarness) -> None:
    release = harness.hold(1)
    harness.enqueue(0, 1, 2, 3)
    async with harness.running() as task:
        await until(lambda: 1 in harness.attempts)
        harness.worker.abandon()
        release.set()
        await until(task.done)
    assert (harness.done, harness.reader.commits()) == ([0, 1, 2], [])


async def test_s34_a_stop_while_a_run_fails_leaves_all_of_it_to_the_next_owner(harness: WorkerHarness) -> None:
    def fail_and_stop(offset: int, attempt: int) -> Exception | None:
        harness.worker.stop()
        return BadEvent("bad") if offset == 1 else None

    harness.fails = fail_and_stop
    harness.enqueue(0, 1, 2)
    async with harness.running() as task:
        await until(task.done)
    assert harness.runs == [[0, 1, 2]]
    assert (harness.reader.commits(), harness.dead_letters.written, harness.observer.offsets) == ([], [], [])


async def test_s34_a_stop_while_a_run_is_taken_apart_commits_exactly_what_was_handled(harness: WorkerHarness) -> None:
    def fail_and_stop(offset: int, attempt: int) -> Exception | None:
        if offset == 1 and attempt == 2:
            harness.worker.stop()
        return ValueError("ours") if offset == 1 else None

    harness.fails = fail_and_stop
    harness.enqueue(0, 1, 2)
    async with harness.running() as task:
        await until(task.done)
    assert harness.runs == [[0, 1, 2], [0], [1]]
    assert (harness.reader.commits(), harness.dead_letters.written) == ([1], [])


async def test_s34_a_worker_cancelled_in_the_middle_of_a_run_commits_nothing_of_it(harness: WorkerHarness) -> None:
    harness.hold(4)
    harness.enqueue(0, 1, 2, 3, 4)
    async with harness.running() as task:
        await until(lambda: 4 in harness.attempts)
        task.cancel()
        await until(task.done)
    assert task.cancelled()
    assert (harness.done, harness.reader.commits(), harness.dead_letters.written) == ([0, 1, 2], [], [])


# --- S35: a run that fails is taken apart -------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", range(RUN))
async def test_s35_of_a_run_only_the_malformed_record_becomes_a_dead_letter_and_the_others_are_handled_in_order(
    harness: WorkerHarness, culprit: int
) -> None:
    harness.fails = lambda offset, attempt: BadEvent("bad JSON") if offset == culprit else None
    harness.enqueue(0, 1, 2)
    async with harness.running():
        await until(lambda: harness.reader.commits() == [3])
    assert harness.done == [offset for offset in range(RUN) if offset != culprit]
    [dead_letter] = harness.dead_letters.written
    assert (dead_letter.record.offset, dead_letter.attempts, dead_letter.reason) == (culprit, 1, "BadEvent: bad JSON")
    assert harness.runs == [[0, 1, 2], [0], [1], [2]]


async def test_s35_of_a_run_only_the_poison_record_has_three_attempts_of_its_own(harness: WorkerHarness) -> None:
    harness.fails = lambda offset, attempt: ValueError("ours") if offset == 1 else None
    harness.enqueue(0, 1, 2)
    async with harness.running():
        await until(lambda: harness.reader.commits() == [3])
    assert harness.runs == [[0, 1, 2], [0], [1], [1], [1], [2]]
    assert harness.done == [0, 2]
    assert [(dead_letter.record.offset, dead_letter.attempts) for dead_letter in harness.dead_letters.written] == [
        (1, 3)
    ]


async def test_s35_two_culprits_of_one_run_both_become_dead_letters_and_no_other_record(harness: WorkerHarness) -> None:
    harness.fails = lambda offset, attempt: BadEvent("bad") if offset in (0, 2) else None
    harness.enqueue(0, 1, 2, 3)
    async with harness.running():
        await until(lambda: harness.reader.commits() == [4])
    assert [dead_letter.record.offset for dead_letter in harness.dead_letters.written] == [0, 2]
    assert harness.done == [1, 3]


async def test_s35_a_bug_that_only_the_run_meets_costs_no_dead_letter(harness: WorkerHarness) -> None:
    harness.fails = lambda offset, attempt: ValueError("moody") if len(harness.runs) == 1 else None
    harness.enqueue(0, 1, 2)
    async with harness.running():
        await until(lambda: harness.reader.commits() == [3])
    assert (harness.done, harness.dead_letters.written) == ([0, 1, 2], [])


async def test_s35_after_a_run_was_taken_apart_runs_are_long_again(harness: WorkerHarness) -> None:
    harness.fails = lambda offset, attempt: BadEvent("bad") if offset == 1 else None
    harness.enqueue(*range(9))
    async with harness.running():
        await until(lambda: harness.reader.commits() == [9])
    assert harness.runs == [[0, 1, 2], [0], [1], [2], [3, 4, 5], [6, 7, 8]]


async def test_s35_a_run_that_was_cut_short_by_the_limit_of_commits_is_taken_apart_as_it_was(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_RECORDS_MAX", 5)
    harness.fails = lambda offset, attempt: BadEvent("bad") if offset == 3 else None
    harness.enqueue(*range(8))
    async with harness.running():
        await until(lambda: harness.reader.commits() == [5, 8])
    assert harness.runs == [[0, 1, 2], [3, 4], [3], [4], [5, 6, 7]]


async def test_h12_a_record_that_failed_in_a_run_is_never_passed_by_those_behind_it(harness: WorkerHarness) -> None:
    release = asyncio.Event()

    def fail_once(offset: int, attempt: int) -> Exception | None:
        if (offset, attempt) != (1, 1):
            return None
        harness.held[1] = release  # its second attempt takes a while
        return ValueError("once")

    harness.fails = fail_once
    harness.enqueue(0, 1, 2)
    async with harness.running():
        await let_everything_run()
        assert harness.runs == [[0, 1, 2], [0], [1]]
        assert harness.reader.commits() == []
        release.set()
        await until(lambda: harness.reader.commits() == [3])
    assert harness.done == [0, 1, 2]


async def test_h13_without_its_dead_letter_a_record_of_a_run_is_not_passed_and_its_neighbours_wait(
    harness: WorkerHarness,
) -> None:
    harness.fails = lambda offset, attempt: BadEvent("bad") if offset == 1 else None
    harness.dead_letters.down = True
    harness.enqueue(0, 1, 2)
    async with harness.running():
        await until(lambda: len(harness.observer.pages) > 3)
        assert harness.done == [0]
        assert all(offset <= 1 for offset in harness.reader.commits())
        assert harness.reader.calls_made.count(("pause", 0)) == 1
        harness.dead_letters.down = False
        await until(lambda: 3 in harness.reader.commits())
    assert (harness.done, harness.observer.dead_letters) == ([0, 2], 1)
