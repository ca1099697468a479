"""`seriatim simulate` says what it ran and what it found, on paper and in its exit code."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import Random

import pytest
from click.testing import CliRunner, Result

from seriatim.cli import simulate
from seriatim.cli.main import main
from seriatim.simulation.report import trace_lines
from seriatim.simulation.runner import empty_loop_events_per_s, run_seeds
from seriatim.simulation.trace import Keep, Trace

WORLD = "tests.unit.cli.fake_schedule:run_schedule"
Simulate = Callable[..., Result]


class FakeMutant:
    def __init__(self, name: str) -> None:
        self.name = name
        self.removes = f"the rule of {name}"
        self.seeds = 25
        self.profile = "store"

    def apply(self) -> AbstractContextManager[object]:
        return nullcontext()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Simulate:
    mutants = {name: FakeMutant(name) for name in ("deadly", "harmless")}
    monkeypatch.setattr(simulate, "known_mutants", lambda: mutants)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["simulate", "--world", WORLD, "--jobs", "1", *arguments])

    return run


def test_a_run_without_violations_exits_with_0_and_adds_everything_up(run: Simulate) -> None:
    result = run("--seeds", "1..9", "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (answer["schedules"], answer["first_seed"], answer["last_seed"]) == (9, 1, 9)
    assert (answer["sends"], answer["acks"], answer["virtual_hours"]) == (90, 81, 0.09)
    assert answer["faults"] == {"crash": 18, "request lost": 9}
    assert answer["violations"] == []


def test_a_violation_exits_with_1_and_names_invariant_story_and_replay(run: Simulate) -> None:
    result = run("--seeds", "1..12", "--profile", "network")
    assert result.exit_code == 1
    assert "VIOLATION client_order" in result.stdout
    assert "bob saw 2 before 1" in result.stdout
    assert "seriatim simulate --seed 10 --profile network --trace" in result.stdout


def test_a_run_ends_once_five_seeds_are_broken(run: Simulate) -> None:
    answer = json.loads(run("--seeds", "1..100000", "--json").stdout)
    assert len(answer["violations"]) >= 5
    assert 50 <= answer["schedules"] < 70  # the chunk in which the fifth lies is finished


def test_the_table_shows_the_speed_beside_that_of_an_empty_loop(run: Simulate) -> None:
    result = run("--seeds", "1..5")
    assert "schedules/s per core" in result.stdout
    assert "as many events on an empty loop" in result.stdout


def test_a_run_of_minutes_ends_when_they_are_over(run: Simulate) -> None:
    result = run("--minutes", "0.0000001", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["schedules"] == 0


def test_a_world_that_falls_over_is_a_violation_of_its_seed(run: Simulate) -> None:
    result = run("--seeds", "665..667", "--json")
    assert result.exit_code == 1
    (violation,) = json.loads(result.stdout)["violations"]
    assert (violation["seed"], violation["invariant"]) == (666, "simulator_error")
    assert "the world fell over" in violation["explanation"]


def test_one_seed_prints_its_trace_and_the_same_digest_each_time(run: Simulate) -> None:
    first, second = run("--seed", "3", "--trace"), run("--seed", "3", "--trace")
    assert "   0.500000  gateway    hello from seed 3 in mixed" in first.stdout
    assert [line for line in first.stdout.splitlines() if "digest" in line] == [
        line for line in second.stdout.splitlines() if "digest" in line
    ]


def test_the_digest_is_the_same_with_and_without_lines(run: Simulate) -> None:
    with_lines = json.loads(run("--seed", "3", "--trace", "--json").stdout)
    without = json.loads(run("--seed", "3", "--json").stdout)
    assert with_lines["digest"] == without["digest"]
    assert len(with_lines["trace"]) == 2
    assert "trace" not in without


def test_a_caught_mutant_exits_with_0_and_says_who_caught_it_and_where(run: Simulate) -> None:
    result = run("--mutant", "deadly", "--json")
    (mutant,) = json.loads(result.stdout)["mutants"]
    assert result.exit_code == 0
    assert (mutant["invariant"], mutant["seed"], mutant["seeds_tried"]) == ("client_order", 10, 10)
    assert mutant["replay"] == "seriatim simulate --seed 10 --profile store --mutant deadly --trace"


def test_a_mutant_that_no_checker_notices_exits_with_1_after_its_seeds(run: Simulate) -> None:
    result = run("--mutant", "all", "--json")
    mutants = json.loads(result.stdout)["mutants"]
    assert result.exit_code == 1
    assert [(mutant["name"], mutant["caught"]) for mutant in mutants] == [("deadly", True), ("harmless", False)]
    assert mutants[1]["seeds_tried"] == 25


def test_the_table_of_mutants_names_the_rule_that_was_removed(run: Simulate) -> None:
    result = run("--mutant", "all")
    assert "the rule of harmless" in result.stdout
    assert "not caught" in result.stdout


def test_replaying_a_caught_mutant_exits_with_0(run: Simulate) -> None:
    assert run("--mutant", "deadly", "--seed", "10", "--trace").exit_code == 0
    assert run("--mutant", "deadly", "--seed", "9", "--trace").exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--seeds", "9..1"),
        ("--seeds", "many"),
        ("--seeds", "1..2", "--seed", "3"),
        ("--trace",),
        ("--profile", "nosuch"),
        ("--mutant", "nosuch"),
        ("--mutant", "all", "--seed", "1", "--trace"),
        ("--minutes", "0"),
        ("--jobs", "0"),
    ],
)
def test_a_mistake_on_the_command_line_exits_with_2(run: Simulate, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_two_processes_find_what_one_finds_in_the_same_order() -> None:
    alone = run_seeds(range(1, 60), profile="calm", world=WORLD)
    together = run_seeds(range(1, 60), profile="calm", world=WORLD, jobs=2)
    assert [broken.seed for broken in together.broken] == [10, 20, 30, 40, 50]
    assert together.broken == alone.broken
    assert together.faults == alone.faults


def test_the_empty_loop_has_a_speed() -> None:
    assert empty_loop_events_per_s() > 1000


def test_a_rendered_trace_fits_the_terminal_and_gives_each_process_a_column() -> None:
    trace, random = Trace(Keep.LINES), Random(1)
    for number in range(50):
        lane = f"process{int(random.random() * 5)}"
        trace.note(number / 10, lane if number % 2 else f"{lane}.1", "x" * 200)
    lines = [line.plain for line in trace_lines(trace, 120)]
    assert max(len(line) for line in lines) == 120
    assert all(line.count("●") == 1 and line.count("·") == 4 for line in lines)


def test_a_trace_that_keeps_nothing_has_no_digest() -> None:
    trace = Trace()
    trace.note(1.0, "a", "b")
    assert (trace.digest(), trace.lines) == ("", [])
