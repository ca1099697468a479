"""Folders and modules stay small enough to read; and each rule is proved by a tree that breaks it."""

from collections import Counter
from pathlib import Path

from tests.tidy.rules import LINES_MAX

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "bench", "tools")
MODULES_MAX = 20


def _full_folders(root: Path) -> list[str]:
    counts = Counter(path.parent for path in root.rglob("*.py") if path.name != "__init__.py")
    return [f"{folder}: {count} modules" for folder, count in sorted(counts.items()) if count > MODULES_MAX]


def _long_modules(root: Path) -> list[Path]:
    paths = sorted(root.rglob("*.py"))
    return [path for path in paths if len(path.read_text(encoding="utf-8").splitlines()) > LINES_MAX]


def test_no_folder_of_the_source_has_more_modules_than_a_reader_takes_in() -> None:
    assert _full_folders(ROOT / "src") == []


def test_no_module_is_longer_than_the_limit() -> None:
    found = [str(each.relative_to(ROOT)) for folder in FOLDERS for each in _long_modules(ROOT / folder)]
    assert found == []


def test_a_folder_over_the_limit_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    for number in range(MODULES_MAX):
        (inner / f"m{number}.py").touch()
    (inner / "__init__.py").touch()
    assert _full_folders(tmp_path) == []
    (inner / "more.py").touch()
    assert _full_folders(tmp_path) == [f"{inner}: {MODULES_MAX + 1} modules"]


def test_a_module_over_the_limit_is_found(tmp_path: Path) -> None:
    module = tmp_path / "inner" / "m.py"
    module.parent.mkdir()
    module.write_text("x = 1\n" * LINES_MAX)
    assert _long_modules(tmp_path) == []
    module.write_text("x = 1\n" * (LINES_MAX + 1))
    assert _long_modules(tmp_path) == [module]
