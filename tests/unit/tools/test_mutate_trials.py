"""`make mutate` on a small project: what becomes of mutants, and that nothing of them is left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tools.mutate import __main__ as command
from tools.mutate import packages
from tools.mutate.equivalents import Equivalent, entry, known, without
from tools.mutate.mutation import Mutation
from tools.mutate.operators import mutations
from tools.mutate.packages import PACKAGES, Package
from tools.mutate.trials import Fate, Tree

ROOT = Path(__file__).parents[3]
MODULE = """
def guarded(a):
    return a + 1


def unguarded(a):
    return a + 1
"""
LOOP = """
def ends(a):
    while a > 0:
        a -= 1
    return a
"""
TEST = """
from seriatim.small.loop import ends
from seriatim.small.module import guarded


def test_it():
    assert guarded(1) == 2


def test_it_ends():
    assert ends(3) == 0
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a function that is tested and one that is not, in place of the working tree."""
    root = tmp_path / "project"
    for file, text in {
        "src/seriatim/__init__.py": "",
        "src/seriatim/small/__init__.py": "",
        "src/seriatim/small/module.py": MODULE,
        "src/seriatim/small/loop.py": LOOP,
        "tests/small/test_module.py": TEST,
        "tests/small/test_other.py": "def test_other(): ...\n",
        "pytest.ini": "[pytest]\naddopts = -p no:asyncio -p no:schemathesis -p no:hypothesispytest\n",
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text, encoding="utf-8")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(packages, "ROOT", root)
    monkeypatch.setitem(PACKAGES, "small", Package(("tests/small",)))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return root


def mutant(what: str, line: int, text: str = MODULE, path: str = "small/module.py") -> Mutation:
    [found] = [each for each in mutations(text, path) if (each.what, each.line) == (what, line)]
    return found


def test_a_mutant_is_killed_or_survives_and_the_tree_is_as_before(project: Path) -> None:
    with Tree(real_engines=False) as tree:
        assert tree.imports_itself()
        assert tree.failures(["tests/small"]) == []
        for line, fate, test in ((3, Fate.KILLED, "tests/small/test_module.py::test_it"), (7, Fate.SURVIVED, "")):
            outcome = tree.trial(mutant("`+` to `-`", line), ["tests/small/test_module.py"], golden=False, limit_s=60)
            assert (outcome.fate, outcome.test) == (fate, test)
            assert (tree.path / "src/seriatim/small/module.py").read_text(encoding="utf-8") == MODULE
    assert (project / "src/seriatim/small/module.py").read_text(encoding="utf-8") == MODULE
    assert not tree.path.exists()


def test_a_mutant_that_never_ends_counts_as_noticed(project: Path) -> None:
    with Tree(real_engines=False) as tree:
        endless = mutant("`-=` to `+=`", 4, LOOP, "small/loop.py")
        outcome = tree.trial(endless, ["tests/small/test_module.py"], golden=False, limit_s=5)
    assert outcome.fate is Fate.HUNG


@pytest.mark.parametrize(("allow", "code"), [(0, 1), (9, 0)])
def test_a_run_shows_survivors_as_diffs_and_exits_by_their_number(
    project: Path, capsys: pytest.CaptureFixture[str], allow: int, code: int
) -> None:
    drawn = ("--module", "module.py", "--count", "4", "--seed", "5")
    assert command.main(["small", *drawn, "--workers", "1", "--allow", str(allow)]) == code
    printed = capsys.readouterr().out
    assert "the unchanged tests pass" in printed
    assert "[4/4] small/module.py:" in printed
    assert "=== SURVIVED: small/module.py:7: " in printed
    assert "+    return " in printed
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_a_run_on_tests_that_fail_by_themselves_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tests/small/test_other.py").write_text("def test_red():\n    assert False\n", encoding="utf-8")
    assert command.main(["small", "--count", "1", "--seed", "1", "--workers", "1"]) == 2
    assert "tests/small/test_other.py::test_red" in capsys.readouterr().out


def test_the_same_seed_draws_the_same_mutants_and_another_seed_others(project: Path) -> None:
    assert command.draw("small", 4, 1) == command.draw("small", 4, 1)
    assert command.draw("small", 4, 1) != command.draw("small", 4, 2)
    assert command.draw("small", 4, 1, "nothing.py") == []


def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.Popen(
        [sys.executable, "-m", "tools.mutate", "domain", "--count", "1", "--seed", "1", "--workers", "1"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with run:
        until = time.monotonic() + 100
        while not _children(run.pid):
            assert time.monotonic() < until, "it does not begin with the tests"
            time.sleep(0.05)
        [tests] = _children(run.pid)
        os.killpg(run.pid, signal.SIGINT)
        printed, _ = run.communicate(timeout=100)
    assert run.returncode == 130
    assert "nothing is left behind" in printed
    assert list(tmp_path.iterdir()) == []
    assert not Path(f"/proc/{tests}").exists()


def _children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [int(each) for each in found.split()]


# --- equivalents ------------------------------------------------------------------------------------------------------


def test_an_equivalent_mutant_is_known_by_its_line_wherever_it_stands(tmp_path: Path) -> None:
    chosen = mutant("`+` to `-`", 7)
    file = tmp_path / "equivalent.toml"
    file.write_text(entry(chosen), encoding="utf-8")
    [kept] = known(file)
    assert kept == Equivalent("small/module.py", "return a + 1", "return a - 1", "...")
    moved = mutations("\n\n" + MODULE, "small/module.py")
    assert [each.line for each in moved if each not in without(moved, [kept])] == [5, 9]


def test_every_known_equivalent_has_a_reason() -> None:
    assert [each for each in known() if len(each.reason) < 20] == []


# --- packages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", list(PACKAGES))
def test_every_package_has_modules_and_tests(package: str) -> None:
    assert packages.modules(package)
    tests = packages.nearest_tests(package)
    assert [each for each in tests if not (ROOT / each.partition("::")[0]).is_file()] == []
    assert len(tests) > len([each for each in tests if each.startswith(("tests/holes", "tests/scenarios"))]) + 1


def test_tests_named_after_a_module_come_first_and_then_those_that_import_it() -> None:
    ordered = packages.nearest_first(packages.nearest_tests("durability"), "durability/slots.py")
    assert ordered[0] == "tests/unit/durability/test_slots.py"
    importing = [
        each for each in ordered if "seriatim.durability.slots" in (ROOT / each.partition("::")[0]).read_text()
    ]
    assert set(ordered[: len(importing)]) == set(importing)
