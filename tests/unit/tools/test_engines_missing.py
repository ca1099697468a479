"""A machine without the engines: the run is green, and ends by saying loudly what it did not look at; CI is red."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.real_engines import TITLE, not_run
from tools.engines.errors import missing
from tools.engines.install import FOLDER_VARIABLE
from tools.engines.java import JDK_PACKAGE

ROOT = Path(__file__).parents[3]
HERE = "tests/unit/tools"
NEED_ENGINES = (
    f"{HERE}/test_engines_redis.py::test_a_started_redis_answers_at_its_address",
    f"{HERE}/test_engines_redis.py::test_a_wiped_redis_is_empty_and_at_the_same_port",
    f"{HERE}/test_engines_kafka.py::test_a_started_kafka_counts_one_living_broker",
    f"{HERE}/test_engines_together.py::test_all_three_answer_inside_the_block_and_nothing_is_left_after_it",
)
RUN_S = 60.0


def test_a_run_without_engines_ends_with_a_list_of_what_was_not_run(tmp_path: Path) -> None:
    ended = _run_without_engines(tmp_path, ci="")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    title, dynamodb, kafka, redis, _, verdict = ended.stdout.splitlines()[-6:]
    assert TITLE in title
    assert dynamodb.startswith("NOT RUN: DynamoDB Local, 1 test: there is no Java. Install Java 17")
    assert kafka.startswith("NOT RUN: Kafka, 2 tests: there is no Java. Install Java 17")
    assert kafka.endswith(f"the package {JDK_PACKAGE}.")
    assert redis.startswith("NOT RUN: Redis, 3 tests: there is no `redis-server`. Install the package redis-server")
    assert "4 skipped" in verdict


def test_in_ci_a_missing_engine_fails_the_run(tmp_path: Path) -> None:
    ended = _run_without_engines(tmp_path, ci="true")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "Kafka was not run: there is no Java" in ended.stdout
    assert "1 failed, 3 errors" in ended.stdout.splitlines()[-1]
    assert TITLE not in ended.stdout


def test_other_reasons_to_skip_are_not_the_engines_fault() -> None:
    assert not_run(["Skipped: there is no curl here", "Skipped: only root can give files away"]) == []


def test_an_engine_that_is_missing_for_two_reasons_is_listed_once_with_both() -> None:
    reasons = [f"Skipped: {missing('Kafka', why, 'Get it.')}" for why in ("no Java", "no jars", "no Java")]
    assert not_run(reasons) == ["NOT RUN: Kafka, 3 tests: no Java. Get it. no jars. Get it."]


def _run_without_engines(folder: Path, *, ci: str) -> subprocess.CompletedProcess[str]:
    """Real tests on two workers, as `make test` runs them, where neither Java nor Redis can be found."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    programs = folder / "bin"
    programs.mkdir()
    (programs / "setpriv").symlink_to(shutil.which("setpriv") or "/nowhere")
    return subprocess.run(
        (sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "--color=no", *NEED_ENGINES),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        cwd=ROOT,
        env={**ours, "PATH": str(programs), "CI": ci, FOLDER_VARIABLE: str(folder / "engines")},
    )
