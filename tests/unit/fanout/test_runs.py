"""One partition, several records at a time: what holds for single records holds for runs, and whom a failure hurts."""

import asyncio

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.domain.events import BadEvent
from seriatim.ports.event_log import Fenced
from tests.unit.fanout.doubles import P0, settle_down, until
from tests.unit.fanout.worker_bench import Bench

RUN = 3


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(limits, "RUN_RECORDS_MAX", RUN)
    return Bench()


# --- order and commits --------------------------------------------------------------------------------------------


async def test_records_that_wait_are_handled_together_in_their_order_and_a_run_is_bounded(bench: Bench) -> None:
    bench.give(0, 1, 2, 3, 4, 5, 6)
    async with bench.running():
        await until(lambda: bench.reader.commits() == [7])
    assert bench.runs == [[0, 1, 2], [3, 4, 5], [6]]
    assert bench.ledger.offsets == [(P0, offset) for offset in range(7)]


async def test_no_run_is_begun_while_another_is_in_hand(bench: Bench) -> None:
    release = bench.hold(1)
    bench.give(0, 1, 2, 3)
    async with bench.running():
        await settle_down()
        assert bench.runs == [[0, 1, 2]]
        release.set()
        await until(lambda: bench.done == [0, 1, 2, 3])


async def test_what_arrives_while_a_run_is_in_hand_is_neither_in_it_nor_passed_by_it(bench: Bench) -> None:
    release = bench.hold(1)
    async with bench.running():
        bench.give(0, 1)
        await until(lambda: bench.runs == [[0, 1]])
        bench.give(2)
        release.set()
        await until(lambda: bench.reader.commits() == [3])
    assert bench.runs == [[0, 1], [2]]


async def test_nothing_of_a_run_is_committed_before_all_of_it_is_handled(bench: Bench) -> None:
    release = bench.hold(7)
    bench.give(5, 6, 7)
    async with bench.running():
        await settle_down()
        assert bench.reader.commits() == []
        release.set()
        await until(lambda: bench.reader.commits() != [])
    assert bench.reader.story == [("handled", 5), ("handled", 6), ("handled", 7), ("commit", 8)]


async def test_a_run_never_exceeds_what_may_go_uncommitted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_RECORDS_MAX", 5)
    bench.hold(10)
    bench.give(*range(11))
    async with bench.running():
        await until(lambda: 10 in bench.attempts)
    assert bench.runs == [[0, 1, 2], [3, 4], [5, 6, 7], [8, 9], [10]]
    assert bench.reader.commits() == [5, 10]


async def test_a_limit_of_commits_below_that_of_runs_bounds_the_first_run_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_RECORDS_MAX", 2)
    bench.give(0, 1, 2)
    async with bench.running():
        await until(lambda: bench.reader.commits() == [2, 3])
    assert bench.runs == [[0, 1], [2]]


async def test_commits_that_fail_do_not_make_the_next_runs_shorter(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_RECORDS_MAX", RUN)
    bench.reader.errors = [OutcomeUnknown("commit"), OutcomeUnknown("commit")]
    bench.give(*range(9))
    async with bench.running():
        await until(lambda: bench.reader.commits() == [9])
    assert bench.runs == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


async def test_a_fenced_commit_behind_a_run_leaves_the_rest_to_the_new_owner(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_RECORDS_MAX", RUN)
    bench.reader.errors = [Fenced()]
    bench.give(0, 1, 2, 3, 4)
    async with bench.running() as task:
        await until(task.done)
    assert task.exception() is None
    assert (bench.done, bench.reader.commits(), bench.ledger.commit_failures) == ([0, 1, 2], [], 0)


# --- S34: stopping in the middle ----------------------------------------------------------------------------------


async def test_s34_a_stop_finishes_the_run_in_hand_commits_behind_it_and_begins_no_other(bench: Bench) -> None:
    release = bench.hold(1)
    bench.give(0, 1, 2, 3)
    async with bench.running() as task:
        await until(lambda: 1 in bench.attempts)
        bench.worker.stop()
        release.set()
        await until(task.done)
    assert bench.done == [0, 1, 2]
    assert bench.reader.commits() == [3]


async def test_s34_a_partition_lost_in_the_middle_of_a_run_is_not_committed(bench: Bench) -> None:
    release = bench.hold(1)
    bench.give(0, 1, 2, 3)
    async with bench.running() as task:
        await until(lambda: 1 in bench.attempts)
        bench.worker.forget()
        release.set()
        await until(task.done)
    assert (bench.done, bench.reader.commits()) == ([0, 1, 2], [])


async def test_s34_a_stop_while_a_run_fails_leaves_all_of_it_to_the_next_owner(bench: Bench) -> None:
    def fail_and_stop(offset: int, attempt: int) -> Exception | None:
        bench.worker.stop()
        return BadEvent("bad") if offset == 1 else None

    bench.fails = fail_and_stop
    bench.give(0, 1, 2)
    async with bench.running() as task:
        await until(task.done)
    assert bench.runs == [[0, 1, 2]]
    assert (bench.reader.commits(), bench.dead_letters.written, bench.ledger.offsets) == ([], [], [])


async def test_s34_a_stop_while_a_run_is_taken_apart_commits_exactly_what_was_handled(bench: Bench) -> None:
    def fail_and_stop(offset: int, attempt: int) -> Exception | None:
        if offset == 1 and attempt == 2:
            bench.worker.stop()
        return ValueError("ours") if offset == 1 else None

    bench.fails = fail_and_stop
    bench.give(0, 1, 2)
    async with bench.running() as task:
        await until(task.done)
    assert bench.runs == [[0, 1, 2], [0], [1]]
    assert (bench.reader.commits(), bench.dead_letters.written) == ([1], [])


async def test_s34_a_worker_cancelled_in_the_middle_of_a_run_commits_nothing_of_it(bench: Bench) -> None:
    bench.hold(4)
    bench.give(0, 1, 2, 3, 4)
    async with bench.running() as task:
        await until(lambda: 4 in bench.attempts)
        task.cancel()
        await until(task.done)
    assert task.cancelled()
    assert (bench.done, bench.reader.commits(), bench.dead_letters.written) == ([0, 1, 2], [], [])


# --- S35: a run that fails is taken apart -------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", range(RUN))
async def test_s35_of_a_run_only_the_malformed_record_becomes_a_dead_letter_and_the_others_are_handled_in_order(
    bench: Bench, culprit: int
) -> None:
    bench.fails = lambda offset, attempt: BadEvent("bad JSON") if offset == culprit else None
    bench.give(0, 1, 2)
    async with bench.running():
        await until(lambda: bench.reader.commits() == [3])
    assert bench.done == [offset for offset in range(RUN) if offset != culprit]
    [dead_letter] = bench.dead_letters.written
    assert (dead_letter.record.offset, dead_letter.attempts, dead_letter.reason) == (culprit, 1, "BadEvent: bad JSON")
    assert bench.runs == [[0, 1, 2], [0], [1], [2]]


async def test_s35_of_a_run_only_the_poison_record_has_three_attempts_of_its_own(bench: Bench) -> None:
    bench.fails = lambda offset, attempt: ValueError("ours") if offset == 1 else None
    bench.give(0, 1, 2)
    async with bench.running():
        await until(lambda: bench.reader.commits() == [3])
    assert bench.runs == [[0, 1, 2], [0], [1], [1], [1], [2]]
    assert bench.done == [0, 2]
    assert [(dead_letter.record.offset, dead_letter.attempts) for dead_letter in bench.dead_letters.written] == [(1, 3)]


async def test_s35_two_culprits_of_one_run_both_become_dead_letters_and_nobody_else(bench: Bench) -> None:
    bench.fails = lambda offset, attempt: BadEvent("bad") if offset in (0, 2) else None
    bench.give(0, 1, 2, 3)
    async with bench.running():
        await until(lambda: bench.reader.commits() == [4])
    assert [dead_letter.record.offset for dead_letter in bench.dead_letters.written] == [0, 2]
    assert bench.done == [1, 3]


async def test_s35_a_bug_that_only_the_run_meets_costs_no_dead_letter(bench: Bench) -> None:
    bench.fails = lambda offset, attempt: ValueError("moody") if len(bench.runs) == 1 else None
    bench.give(0, 1, 2)
    async with bench.running():
        await until(lambda: bench.reader.commits() == [3])
    assert (bench.done, bench.dead_letters.written) == ([0, 1, 2], [])


async def test_s35_after_a_run_was_taken_apart_runs_are_long_again(bench: Bench) -> None:
    bench.fails = lambda offset, attempt: BadEvent("bad") if offset == 1 else None
    bench.give(*range(9))
    async with bench.running():
        await until(lambda: bench.reader.commits() == [9])
    assert bench.runs == [[0, 1, 2], [0], [1], [2], [3, 4, 5], [6, 7, 8]]


async def test_s35_a_run_that_was_cut_short_by_the_limit_of_commits_is_taken_apart_as_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_RECORDS_MAX", 5)
    bench.fails = lambda offset, attempt: BadEvent("bad") if offset == 3 else None
    bench.give(*range(8))
    async with bench.running():
        await until(lambda: bench.reader.commits() == [5, 8])
    assert bench.runs == [[0, 1, 2], [3, 4], [3], [4], [5, 6, 7]]


async def test_h12_a_record_that_failed_in_a_run_is_never_passed_by_those_behind_it(bench: Bench) -> None:
    release = asyncio.Event()

    def fail_once(offset: int, attempt: int) -> Exception | None:
        if (offset, attempt) != (1, 1):
            return None
        bench.held[1] = release  # its second attempt takes a while
        return ValueError("once")

    bench.fails = fail_once
    bench.give(0, 1, 2)
    async with bench.running():
        await settle_down()
        assert bench.runs == [[0, 1, 2], [0], [1]]
        assert bench.reader.commits() == []
        release.set()
        await until(lambda: bench.reader.commits() == [3])
    assert bench.done == [0, 1, 2]


async def test_h13_without_its_dead_letter_a_record_of_a_run_is_not_passed_and_its_neighbours_wait(
    bench: Bench,
) -> None:
    bench.fails = lambda offset, attempt: BadEvent("bad") if offset == 1 else None
    bench.dead_letters.down = True
    bench.give(0, 1, 2)
    async with bench.running():
        await until(lambda: len(bench.ledger.pages) > 3)
        assert bench.done == [0]
        assert all(offset <= 1 for offset in bench.reader.commits())
        assert bench.reader.story.count(("pause", 0)) == 1
        bench.dead_letters.down = False
        await until(lambda: 3 in bench.reader.commits())
    assert (bench.done, bench.ledger.dead_letters) == ([0, 2], 1)
