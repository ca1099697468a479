"""A new engine is under the contract suites of its ports, and under the import rule of the engines."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "seriatim"
SUITES = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / "contract").glob("*.py")))


def test_every_engine_of_a_port_with_a_contract_suite_is_run_by_it() -> None:
    """A port has a suite if one of its engines is named there; then all of them are."""
    by_port = defaultdict(list)
    for name, port in _engines():
        by_port[port].append(name)
    tested = {port: [name for name in names if re.search(rf"\b{name}\b", SUITES)] for port, names in by_port.items()}
    missing = [(port, name) for port, names in tested.items() if names for name in set(by_port[port]) - set(names)]
    assert len([names for names in tested.values() if names]) > 10
    assert missing == []


def test_every_folder_of_engines_is_under_the_rule_that_they_do_not_import_each_other() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [rule] = [each for each in contracts if each["name"] == "Engines do not import each other"]
    folders = [path.name for path in (SOURCE / "engines").iterdir() if (path / "__init__.py").exists()]
    assert sorted(rule["modules"]) == sorted(f"seriatim.engines.{name}" for name in folders if name != "shared")


def _engines() -> Iterator[tuple[str, str]]:
    """Classes in `engines` that name a Protocol of `ports` as a base, with the name of that Protocol."""
    ports = [node.name for node in _classes(SOURCE / "ports") if "Protocol" in map(ast.unparse, node.bases)]
    for node in _classes(SOURCE / "engines"):
        bases = [ast.unparse(base) for base in node.bases]
        if "Protocol" not in bases and not node.name.startswith("_"):
            yield from ((node.name, base) for base in bases if base in ports)


def _classes(folder: Path) -> Iterator[ast.ClassDef]:
    for path in sorted(folder.rglob("*.py")):
        yield from (node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef))
