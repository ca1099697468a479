"""What a test does about an engine that is not on this machine: it says so and is skipped; in CI it fails.

The run ends with a list of what was not run because of that, so that a green run is not taken for more than it was.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import pytest

from tools.engines.errors import EngineMissing

TITLE = "NOT RUN: tests on real engines that are not on this machine"
_MISSING = re.compile(r"^(?:Skipped: )?(?P<engine>.+?) was not run: (?P<why>.+)$", re.MULTILINE)


@contextmanager
def real_engines() -> Iterator[None]:
    """Wraps whatever starts a real engine. The reason ends up in the list at the end of the run."""
    if os.environ.get("TEST_REAL_ENGINES") == "off":  # `make mutate`: they would be started for each mutant
        _leave_out("a real engine was not run: TEST_REAL_ENGINES is off.")
    try:
        yield
    except EngineMissing as error:
        _leave_out(str(error))


def _leave_out(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def not_run(reasons: Iterable[str]) -> Sequence[str]:
    """A line for each engine: how many tests, and what to do. `reasons` are those of all skipped tests, one each."""
    tests: dict[str, int] = {}
    remedies: dict[str, dict[str, None]] = {}
    for reason in reasons:
        for found in _MISSING.finditer(reason):
            engine = found["engine"]
            tests[engine] = tests.get(engine, 0) + 1
            remedies.setdefault(engine, {})[found["why"]] = None
    return [
        f"NOT RUN: {engine}, {count} {'test' if count == 1 else 'tests'}: {' '.join(remedies[engine])}"
        for engine, count in sorted(tests.items())
    ]
