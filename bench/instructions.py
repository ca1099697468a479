"""Instructions that a message costs, counted by valgrind: the same on a busy machine as on a quiet one.

Two runs that differ only in how many messages they send: the difference is the messages'. `make bench
ARGS=instructions`, about three minutes. It tells what a change is worth, not how fast anything is.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from bench.people import People, gather_people
from bench.processes import CORES, ROOT, child, on_a_loop
from bench.server import Crowd, listening

CROWDS = (Crowd(100, 2), Crowd(100, 10))  # with more on their way each, a run ends in the middle of too much
WARM_MESSAGES = 500
MESSAGES = 5000
PERSONS = 400


class ValgrindMissing(Exception):
    """It is not installed, and what to do about it."""


def figures(*, messages: int = MESSAGES) -> dict[str, int]:
    """By crowd."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise ValgrindMissing("instructions are counted by valgrind, which is not here; Debian's package has that name")
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-", ignore_cleanup_errors=True) as root:
        data, people = Path(root) / "data", Path(root) / "people.json"
        _say("signing people in")
        people.write_bytes(msgspec.json.encode(_gathered(data)))
        runs = [(crowd, sent) for crowd in CROWDS for sent in (0, messages)]
        with ThreadPoolExecutor(len(CORES)) as pool:
            counts = list(pool.map(lambda run: _count(valgrind, Path(root), data, people, *run), runs))
    return {
        str(crowd): (after - before) // messages
        for crowd, before, after in zip(CROWDS, counts[::2], counts[1::2], strict=True)
    }


def _gathered(data: Path) -> People:
    with child("seriatim", "--data", str(data)) as process:
        return on_a_loop(gather_people(data, listening(process), persons=PERSONS))


def _count(valgrind: str, root: Path, data: Path, people: Path, crowd: Crowd, messages: int) -> int:
    """All that one process does, from its first instruction to its last."""
    copy = Path(tempfile.mkdtemp(dir=root)) / "data"
    shutil.copytree(data, copy, ignore=shutil.ignore_patterns("*.sock"))
    wanted = {
        "data": copy,
        "people": people,
        "connections": crowd.connections,
        "chat": crowd.chat,
        "depth": crowd.depth,
        "messages": WARM_MESSAGES + messages,
    }
    _say(f"{crowd}: {wanted['messages']} messages")
    command = [valgrind, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, "-m", "bench.counted"]
    command += [f"--{name}={value}" for name, value in wanted.items()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    shutil.rmtree(copy.parent, ignore_errors=True)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"the counted server failed:\n{done.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
