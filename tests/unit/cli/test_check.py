"""`seriatim check` says what it looked at and what it found: in a table, in JSON, and in its exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.cli import check as command
from seriatim.cli.main import main
from seriatim.engines.embedded.storage.disk import Disk
from seriatim.operations.check.invariants import INVARIANTS
from tests.unit.operations import violations
from tests.unit.operations.violations import Rows, Violation

CHECKED = [each for each in INVARIANTS.values() if not each.shown_by]


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["check", "--data", str(data), "--recheck-seconds", "0", *arguments])


def broken(data: Path, violation: Violation) -> Path:
    disk = Disk(data / "store", create=False)
    violation(Rows(disk))
    disk.close()
    return data


def test_a_sound_folder_exits_with_0_and_every_checked_invariant_is_in_the_table(pristine: Path) -> None:
    result = run(pristine)
    assert result.exit_code == 0
    assert "Every invariant holds" in result.stdout
    for each in CHECKED:
        assert f"│ {each.id} " in result.stdout
        assert each.name in result.stdout


def test_a_violation_exits_with_1_and_says_where_what_and_what_to_do(populated: Path) -> None:
    result = run(broken(populated, violations.a_hole_below_the_published_mark))
    assert result.exit_code == 1
    assert "chat_group #3" in result.stdout
    assert "nothing is stored from #3 to #3" in result.stdout
    assert INVARIANTS["I14"].advice in result.stdout


def test_of_many_violations_a_few_are_shown_and_the_rest_is_counted(populated: Path) -> None:
    def strangers(rows: Rows) -> None:
        for number in range(20):
            rows.put(violations.user_chat(f"user_{number}", "chat_group"), b"")

    result = run(broken(populated, strangers))
    assert "... and 15 more of these kinds." in result.stdout
    assert "20 violations of 1 invariants" in result.stdout


def test_json_has_the_same_for_programs(populated: Path) -> None:
    result = run(broken(populated, violations.a_lost_counter), "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (answer["violations"], answer["withdrawn"]) == (1, 0)
    assert [line["invariant"] for line in answer["invariants"]] == [each.id for each in CHECKED]
    assert {line["invariant"]: line["violations"] for line in answer["invariants"]}["I5"] == 1
    (violation,) = answer["shown"]
    assert (violation["invariant"], violation["subject"]) == ("I5", "chat_empty")


def test_the_invariants_that_rows_cannot_show_are_listed_with_their_tests(pristine: Path) -> None:
    result = run(pristine, "--tests")
    for each in INVARIANTS.values():
        assert all(f"tests/{test}" in result.stdout for test in each.shown_by)
    answer = json.loads(run(pristine, "--tests", "--json").stdout)
    assert len(answer["tested"]) + len(CHECKED) == len(INVARIANTS)


@pytest.mark.parametrize("table", ["narrow", "wide"])
def test_a_narrow_terminal_cuts_off_no_number(pristine: Path, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.cli.printing.WIDTH", 60 if table == "narrow" else 120)
    lines = run(pristine).stdout.splitlines()
    assert max(map(len, lines)) <= (60 if table == "narrow" else 120)
    assert "…" not in "".join(lines)


def test_a_folder_that_cannot_be_checked_exits_with_2_in_one_line(tmp_path: Path, populated: Path) -> None:
    missing = run(tmp_path / "nowhere")
    (populated / "FORMAT").write_text("7\n")
    newer = run(populated)
    assert (missing.exit_code, newer.exit_code) == (2, 2)
    assert missing.stderr.startswith("Error: there is no data folder")
    assert newer.stderr.startswith("Error: the data folder")
    assert "format 7" in newer.stderr
    assert missing.stderr.count("\n") == newer.stderr.count("\n") == 1


def test_a_row_that_cannot_be_read_exits_with_2(populated: Path) -> None:
    result = run(broken(populated, lambda rows: rows.put(b"C\x00\x01x", b"no row")))
    assert result.exit_code == 2
    assert "not what this release writes" in result.stderr


def test_an_interrupted_check_has_found_nothing(pristine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "check_stored", interrupted)
    assert run(pristine).exit_code == 130


def test_a_reader_who_stops_early_changes_neither_the_exit_code_nor_gets_a_traceback(populated: Path) -> None:
    broken(populated, violations.a_lost_counter)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "seriatim.cli.main",
            "check",
            "--data",
            str(populated),
            "--recheck-seconds",
            "0",
            "--tests",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, stderr = process.communicate()
    assert (process.returncode, stderr) == (1, b"")
