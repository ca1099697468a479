"""All three engines at once: started and ended together, and honest about what is not on the machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.real_engines import real_engines
from tools.engines.engines import FOLDER_PREFIX, Engines, sweep
from tools.engines.errors import EngineMissing


async def test_all_three_answer_inside_the_block_and_nothing_is_left_after_it(tmp_path: Path) -> None:
    with real_engines():
        async with Engines.started(tmp_path) as engines:
            all_three = (engines.redis, engines.kafka, engines.dynamodb)
            assert all(engine.answers() for engine in all_three)
            assert engines.redis_url == f"redis://127.0.0.1:{engines.redis.port}"
            assert engines.kafka_bootstrap == f"127.0.0.1:{engines.kafka.port}"
            assert engines.dynamodb_url == f"http://127.0.0.1:{engines.dynamodb.port}"
    assert not any(engine.is_running for engine in all_three)
    assert _names_in(tmp_path) == []


def test_everything_that_is_missing_is_named_at_once_and_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EngineMissing) as caught, Engines.started(tmp_path):
        pytest.fail("nothing can run without programs")
    lines = str(caught.value).splitlines()
    assert [line.split(" was not run: ")[0] for line in lines] == ["Redis", "Kafka", "DynamoDB Local"]
    assert _names_in(tmp_path) == []


def test_the_data_of_a_run_that_was_killed_is_removed_by_the_next(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    left = tmp_path / f"{FOLDER_PREFIX}{ended.pid}-left"
    in_use = tmp_path / f"{FOLDER_PREFIX}{os.getpid()}-used"
    foreign = tmp_path / "somebody-else"
    for folder in (left, in_use, foreign):
        folder.mkdir()
    sweep(tmp_path)
    assert _names_in(tmp_path) == sorted([in_use.name, foreign.name])


def _names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())
