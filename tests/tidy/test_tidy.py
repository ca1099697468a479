"""The planes and what they stand on keep the house rules; and every rule is proved by a snippet that breaks it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.rules import LINES_MAX, untidy

SOURCE = Path(__file__).parents[2] / "src" / "seriatim"
FOLDERS = ("domain", "protocol", "ports", "connection", "durability", "fanout", "api")


def _modules() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((SOURCE / folder).rglob("*.py"))


def test_every_folder_is_looked_at() -> None:
    found = [path.relative_to(SOURCE).parts[0] for path in _modules() if path.name != "__init__.py"]
    assert tuple(dict.fromkeys(found)) == FOLDERS


def test_the_planes_and_what_they_stand_on_are_tidy() -> None:
    findings = [
        finding
        for path in _modules()
        for finding in untidy(path.read_text(encoding="utf-8"), str(path.relative_to(SOURCE.parent)))
    ]
    assert not findings, "\n" + "\n".join(map(str, findings))


# --- each rule can fail --------------------------------------------------------------------------------------------


def _lines_of(snippet: str) -> list[int]:
    return [finding.line for finding in untidy('"""A module."""\n' + snippet, "snippet.py")]


@pytest.mark.parametrize(
    "snippet",
    [
        "import time",
        "import time as t",
        "from time import monotonic",
        "import random",
        "from random import Random",
        "import secrets",
        "import uuid",
        "from uuid import uuid4",
        "import threading",
        "import multiprocessing.pool",
        "import datetime; x = datetime.datetime.now()",
        "from datetime import datetime; x = datetime.now",
        "from datetime import datetime; x = datetime.utcnow()",
        "from datetime import date; x = date.today()",
        "import os; x = os.environ['A']",
        "import os; x = os.getenv('A')",
        "from os import environ",
        "import asyncio; x = asyncio.to_thread(f)",
        "from asyncio import to_thread",
        "x = loop.run_in_executor(None, f)",
    ],
)
def test_time_chance_threads_and_the_environment_are_found(snippet: str) -> None:
    assert _lines_of(snippet) == [2]


@pytest.mark.parametrize(
    "snippet",
    [
        "for x in {1, 2}: pass",
        "for x in {y for y in z}: pass",
        "for x in set(y): pass",
        "for x in frozenset(y): pass",
        "for x in a | {1}: pass",
        "for x in {1} if y else (): pass",
        "x = [y for y in {1, 2}]",
        "x = {y: 1 for y in set(z)}",
        "x = list({1, 2})",
        "x = tuple(set(y))",
        "x = [*{1, 2}]",
        "x = next(iter({1, 2}))",
        "x = ','.join({'a', 'b'})",
        "x = sorted([z for z in [y for y in {1}]])",
    ],
)
def test_an_iteration_over_a_set_is_found(snippet: str) -> None:
    assert _lines_of(snippet) == [2]


@pytest.mark.parametrize(
    ("snippet", "line"),
    [
        ("seen = set()\nfor x in seen: pass", 3),
        ("seen: set[str]\nfor x in seen: pass", 3),
        ("seen: 'set[str] | None' = None\nfor x in seen: pass", 3),
        ("SEEN = frozenset({1})\ndef f():\n    return list(SEEN)", 4),
        ("def f(seen: set[str]):\n    return [x for x in seen]", 3),
        ("def f(*, seen: AbstractSet[str]):\n    for x in seen: pass", 3),
        ("def f(seen: set[str]):\n    other = seen\n    for x in other: pass", 4),
        ("SEEN = {1}\ndef f():\n    other = SEEN\n    for x in other: pass", 5),
        ("def f(seen: set[str]):\n    for x in seen.union(y): pass", 3),
        ("def f() -> set[str]: ...\nfor x in f(): pass", 3),
        ("class A:\n    seen: set[str]\n    def f(self):\n        for x in self.seen: pass", 5),
        (
            "class A:\n    def __init__(self):\n        self._seen = set()\n    def f(self):\n        list(self._seen)",
            6,
        ),
        ("class A:\n    def f(self):\n        list(self._seen)\n    def g(self):\n        self._seen: set[int] = y", 4),
    ],
)
def test_an_iteration_over_a_name_for_a_set_is_found(snippet: str, line: int) -> None:
    assert _lines_of(snippet) == [line]


@pytest.mark.parametrize(
    "snippet",
    [
        "for x in sorted({1, 2}): pass",
        "for x in dict.fromkeys((1, 2)): pass",
        "x = sorted(y for y in {1, 2})",
        "x = any(y for y in {1, 2})",
        "x = len({1, 2})",
        "x = 1 in {1, 2}",
        "x = {y for y in {1, 2}}",
        "def f(seen: set[str]): ...\ndef g(seen: list[str]):\n    for x in seen: pass",
        "def f():\n    seen = set()\ndef g(seen):\n    for x in seen: pass",
    ],
)
def test_a_set_without_an_order_that_matters_is_left_alone(snippet: str) -> None:
    assert _lines_of(snippet) == []


@pytest.mark.parametrize(
    "snippet",
    [
        "asyncio.create_task(f())",
        "asyncio.ensure_future(f())",
        "create_task(f())",
        "asyncio.get_running_loop().create_task(f())",
        "_ = asyncio.create_task(f())",
    ],
)
def test_a_forgotten_task_is_found(snippet: str) -> None:
    assert _lines_of(snippet) == [2]


@pytest.mark.parametrize(
    "snippet",
    [
        "task = asyncio.create_task(f())",
        "self.tasks[name] = asyncio.create_task(f())",
        "async def f():\n    await asyncio.create_task(g())",
        "async def f():\n    async with asyncio.TaskGroup() as group:\n        group.create_task(g())",
    ],
)
def test_a_task_that_is_kept_is_left_alone(snippet: str) -> None:
    assert _lines_of(snippet) == []


@pytest.mark.parametrize(
    "snippet",
    ["print('x')", "x = 1  # TODO: later", "# FIXME", "raise NotImplementedError", "raise NotImplementedError('x')"],
)
def test_a_loose_end_is_found(snippet: str) -> None:
    assert _lines_of(snippet) == [2]


def test_a_module_over_the_limit_is_found() -> None:
    assert _lines_of("x = 1\n" * (LINES_MAX - 1)) == []
    assert _lines_of("x = 1\n" * LINES_MAX) == [LINES_MAX + 1]


def test_a_module_without_a_docstring_is_found() -> None:
    assert [finding.line for finding in untidy("x = 1\n", "snippet.py")] == [1]


def test_a_finding_names_file_and_line() -> None:
    [finding] = untidy('"""A module."""\nimport time\n', "planes/snippet.py")
    assert str(finding).startswith("planes/snippet.py:2: ")


@pytest.mark.parametrize(
    "snippet",
    [
        "from datetime import UTC, datetime, timedelta\nx = datetime(1970, 1, 1, tzinfo=UTC)",
        "x = datetime.fromisoformat(text)",
        "x = clock.now_ms()",
        "x = clock.random()",
        "import asyncio\nx = asyncio.timeout(1)",
        "from seriatim.domain.times import iso",
        "import os.path",
    ],
)
def test_conversions_and_the_clock_are_left_alone(snippet: str) -> None:
    assert _lines_of(snippet) == []
