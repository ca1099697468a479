"""A seed is a world: the same trace under any hash seed, and on any machine.

`golden.json` holds the digests of some traces. After a change of behaviour on purpose, `make golden` writes them again.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).with_name("golden.json")
SEEDS = (1, 7, 42)

PROGRAM = """
import json
from seriatim.simulation.runner import run_one
from seriatim.simulation.trace import Keep, Trace
def digest(seed):
    return run_one(seed, profile="mixed", trace=Trace(Keep.DIGEST)).digest
print(json.dumps({seed: digest(seed) for seed in (1, 7, 42)}))
"""


def digests(hash_seed: int) -> dict[str, str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True, text=True
    )
    found: dict[str, str] = json.loads(printed.stdout)
    return found


@pytest.mark.parametrize("hash_seed", [0, 1, 20261115])
def test_a_named_seed_replays_to_the_same_trace_everywhere(hash_seed: int) -> None:
    assert digests(hash_seed) == json.loads(GOLDEN.read_text()), "changed on purpose? then: make golden"


def test_a_trace_does_not_change_what_happens() -> None:
    from seriatim.simulation.runner import run_one
    from seriatim.simulation.trace import Keep, Trace

    for seed in SEEDS:
        watched = run_one(seed, profile="mixed", trace=Trace(Keep.LINES))
        unwatched = run_one(seed, profile="mixed")
        assert (watched.events_run, watched.acks, watched.virtual_seconds, watched.faults) == (
            unwatched.events_run,
            unwatched.acks,
            unwatched.virtual_seconds,
            unwatched.faults,
        )


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(digests(0), indent=2) + "\n")
