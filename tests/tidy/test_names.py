"""No retired name comes back, no class name means two things; and each rule is proved by a snippet that breaks it."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.names import Name, retired

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "bench", "tools")
_CLASS = re.compile(r"\s*class (\w+)\s*[:(]")

# Class names that exist several times in src on purpose, each with its reason.
SHARED_CLASS_NAMES: dict[str, str] = {}


def _modules(*folders: str) -> Iterator[tuple[str, str]]:
    """Path and source of every module below these folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def _retired(modules: Iterator[tuple[str, str]]) -> list[tuple[Name, str]]:
    return [found for path, source in modules for found in retired(source, path)]


def _shared(modules: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Class names that several modules define, with these modules."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, source in modules:
        for number, line in enumerate(source.splitlines(), start=1):
            if found := _CLASS.match(line):
                places[found[1]].append(f"{path}:{number}")
    return {name: at for name, at in places.items() if len(at) > 1}


def test_every_folder_is_read() -> None:
    assert {path.split("/", 1)[0] for path, _ in _modules(*FOLDERS)} == set(FOLDERS)


def test_no_retired_name_is_left() -> None:
    found = [f"{name}: say {instead}" for name, instead in _retired(_modules(*FOLDERS))]
    assert not found, "\n" + "\n".join(found)


def test_no_class_name_exists_twice() -> None:
    found = [
        f"{name}: {', '.join(at)}" for name, at in _shared(_modules("src")).items() if name not in SHARED_CLASS_NAMES
    ]
    assert not found, "\n" + "\n".join(found)


def test_no_reason_is_given_for_a_class_name_that_exists_once() -> None:
    assert set(SHARED_CLASS_NAMES) <= set(_shared(_modules("src")))


# --- each rule can fail --------------------------------------------------------------------------------------------

LISTENER = "src/seriatim/connection/listener/http1.py"
EMBEDDED = "src/seriatim/engines/embedded/accounts.py"
TEST = "tests/unit/api/test_chats.py"


@pytest.mark.parametrize(
    ("snippet", "module"),
    [
        ("class Door: ...", LISTENER),
        ("class _Company: ...", "src/seriatim/durability/atomic_commit.py"),
        ("Look = dict[str, bytes]", EMBEDDED),
        ("class World: ...", "src/seriatim/runtime/wiring/engines.py"),
        ("class Chats: ...", "src/seriatim/connection/session/chat_delivery.py"),
        ("def stand(): ...", EMBEDDED),
        ("class Log:\n    def bury(self): ...", EMBEDDED),
        ("def read(look): ...", EMBEDDED),
        ("def read(*, look: int = 0): ...", EMBEDDED),
        ("class Event:\n    told: bool", "src/seriatim/ports/event_log.py"),
        ("told = 1", "bench/run.py"),
        ("if told := 1: ...", "tools/sizing/page.py"),
        ("for told in (): ...", TEST),
        ("with a as told: ...", TEST),
        ("import a as told", TEST),
        ("try: ...\nexcept E as told: ...", TEST),
        ("match a:\n    case [*told]: ...", TEST),
        ("match a:\n    case int() as told: ...", TEST),
        ("self.whole = True", LISTENER),
        ("_rest = b''", LISTENER),
        ("def make_town(): ...", TEST),
        ("class SharedTown: ...", TEST),
        ("TOWNS = TOWN = 1", TEST),
        ("def test_a_name(desk): ...", TEST),
        ("", "tests/support/town_client.py"),
        ("", "tests/unit/connection/kit.py"),
        ("bench = 1", TEST),
    ],
)
def test_a_retired_name_is_found(snippet: str, module: str) -> None:
    [(name, instead)] = retired(snippet, module)
    assert str(name).startswith(f"{module}:{name.line}: {name.kind} ")
    assert instead


@pytest.mark.parametrize(
    ("snippet", "module"),
    [
        ("class World: ...", "src/seriatim/simulation/world.py"),
        ("class Chats: ...", "src/seriatim/api/chats.py"),
        ("whole = 1", "src/seriatim/protocol/codec.py"),
        ("a = x.told", TEST),
        ("f(told=1)", TEST),
        ("def test_the_town_is_told(): ...", TEST),
        ("def indoor(): ...", TEST),
        ("class DeadLetter: ...", "src/seriatim/domain/dead_letter.py"),
        ("def back(): ...", TEST),
        ("look = 1", TEST),
        ("import bench.run", TEST),
        ("bench = 1", "tests/unit/bench/test_run.py"),
        ("VIEW = 1", LISTENER),
    ],
)
def test_an_ordinary_name_is_left_alone(snippet: str, module: str) -> None:
    assert list(retired(snippet, module)) == []


def test_a_class_name_that_exists_twice_is_found() -> None:
    modules = [("a.py", "class Row: ...\nclass Key: ..."), ("b.py", "def f():\n    class Row: ...")]
    assert _shared(iter(modules)) == {"Row": ["a.py:1", "b.py:2"]}


def test_a_class_name_is_found_twice_in_one_module() -> None:
    assert _shared(iter([("a.py", "if X:\n    class Row: ...\nelse:\n    class Row: ...")])) == {
        "Row": ["a.py:2", "a.py:4"]
    }
