"""The pins: serving installs a part of what development installs, in the same versions."""

import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def pins(name: str) -> Mapping[str, str]:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return {found[1].lower(): found[2] for found in _PIN.finditer(text)}


def names(requirements: list[str]) -> set[str]:
    return {found[0].lower() for each in requirements if (found := _NAME.match(each))}


def test_a_package_for_serving_has_the_pin_of_development() -> None:
    assert pins("server.txt").items() <= pins("dev.txt").items()


def test_every_package_that_the_project_names_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert names([*project["dependencies"], *extras["server"]]) <= pins("server.txt").keys()
    assert names([each for extra in extras.values() for each in extra]) <= pins("dev.txt").keys()


def test_make_run_installs_no_tools_of_development(tmp_path: Path) -> None:
    """In a clone without `.venv`, where `make run` has everything to do."""
    for name in ("Makefile", "pyproject.toml", "requirements"):
        (tmp_path / name).symlink_to(ROOT / name)
    assert " -r requirements/server.txt" in dry_run(tmp_path, "run")
    assert " -r requirements/dev.txt" not in dry_run(tmp_path, "run")
    assert " -r requirements/dev.txt" in dry_run(tmp_path, "test")


def dry_run(folder: Path, target: str) -> str:
    return subprocess.run(["make", "-n", target], cwd=folder, capture_output=True, text=True, check=True).stdout
