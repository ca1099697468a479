"""ARCHITECTURE.md, CONTRIBUTING.md, decisions and specification name what is there: tree, traces, paths, names."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "seriatim"
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
LINE_CHARS_MAX = 120
TREE = re.compile(r"^( +)(\w+)/ ", flags=re.MULTILINE)
TRACE_LINE = re.compile(r"^ *(\w+(?:\.\w+)?) {2,}([\w/]+) {2,}\S", flags=re.MULTILINE)


def test_the_tree_names_every_folder_and_no_other() -> None:
    block = _blocks(ARCHITECTURE, "## The tree")[0].partition("examples/")[0]
    named, parents = [], [""]
    for indent, name in TREE.findall(block):
        del parents[len(indent) // 2 :]
        parents.append(name)
        named.append("/".join(parents[1:]))
    found = [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*") if _is_folder(path)]
    assert sorted(named) == sorted(found)


def test_every_step_of_a_trace_is_in_the_file_that_it_names() -> None:
    steps = [step for block in _blocks(ARCHITECTURE, "## Traces") for step in TRACE_LINE.findall(block)]
    assert len(steps) > 50
    assert [(name, module) for name, module in steps if name not in _defined(SOURCE / f"{module}.py")] == []


PAGES = pytest.mark.parametrize("text", [ARCHITECTURE, CONTRIBUTING], ids=["ARCHITECTURE.md", "CONTRIBUTING.md"])


@PAGES
def test_every_path_in_code_type_leads_to_a_file_or_a_folder(text: str) -> None:
    """Relative to the repository or to src/seriatim; a module may be named without its ending."""
    places = [each for each in _code(text) if re.fullmatch(r"[\w.-]+(/[\w.-]+)+/?|\w+/", each)]
    assert len(places) > 30
    assert [each for each in places if not _exists(each)] == []


@PAGES
def test_every_identifier_in_code_type_is_in_the_code(text: str) -> None:
    """CamelCase, UPPER_CASE, snake_case and members after a dot. Mutants are named with dashes."""
    names = _identifiers(text)
    assert len(names) > 10
    assert _unknown(names) == []


def test_every_identifier_in_a_decision_and_in_the_specification_is_in_the_code() -> None:
    """Names change, decisions stay: each names what it is about as the code does today."""
    pages = [*sorted((ROOT / "docs" / "decisions").glob("*.md")), *sorted((ROOT / "docs" / "spec").glob("*.md"))]
    missing = {page.name: _unknown(_identifiers(page.read_text(encoding="utf-8"))) for page in pages}
    assert {name: found for name, found in missing.items() if found} == {}


@PAGES
def test_prose_is_wrapped(text: str) -> None:
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > LINE_CHARS_MAX] == []


# --- what is read off the pages and the code -------------------------------------------------------------------------

EXAMPLES = (  # of what CONTRIBUTING adds
    "limits_request",
    "limits_reply",
    "SERIATIM_LOOKUPS_PER_HOUR_MAX",
    "test_a_repeated_key_returns_the_first_message",
)
OF_AMAZON = ("TransactionInProgress", "aws_partition")  # names of its own
OF_UVICORN = (
    "HttpToolsProtocol",
    "lenient_data_after_close",
    "limit_concurrency",
    "on_response_complete",
    "ws_protocol_class",
)
NO_PATHS = ("src/seriatim/engines/spool/code_sender.py", "docs/decisions/0033")  # an example, and a citation


def _code(text: str) -> list[str]:
    """What is in code type within prose and tables."""
    return list(dict.fromkeys(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))))


def _identifiers(text: str) -> list[str]:
    shape = re.compile(r"\w*[a-z0-9][A-Z_]\w*(\.\w+)?|[A-Z]\w+\.\w+|[A-Z]+(_[A-Z]+)+|_\w+")
    return [each for each in _code(text) if shape.fullmatch(each) and not each.endswith((".py", ".md"))]


def _unknown(names: list[str]) -> list[str]:
    """Prometheus adds `_total` to the names of counters."""
    known = _words()
    names = [each for each in names if each not in (*EXAMPLES, *OF_AMAZON, *OF_UVICORN)]
    return [each for each in names if not set(each.removesuffix("_total").split(".")) <= known]


def _blocks(text: str, heading: str) -> list[str]:
    """The fenced blocks below a heading, up to the next heading of its level."""
    section = re.split(r"^## ", text.partition(f"{heading}\n")[2], flags=re.M)[0]
    return re.findall(r"^```text\n(.*?)^```", section, flags=re.M | re.S)


def _exists(place: str) -> bool:
    here = [base / f"{place.rstrip('/')}{ending}" for base in (ROOT, SOURCE) for ending in ("", ".py")]
    return place in NO_PATHS or any(path.exists() for path in here)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and path.name != "__pycache__" and any(each.is_file() for each in path.rglob("[!_.]*"))


def _defined(module: Path) -> set[str]:
    """Functions and classes of a module, and members of those classes."""
    names: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body if module.exists() else ():
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names.update(f"{node.name}.{member}" for member in _members(node))
    return names


def _members(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id


@cache
def _words() -> set[str]:
    paths = [path for folder in ("src", "tests", "tools", "deploy") for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text(encoding="utf-8") for path in paths if path.suffix in (".py", ".json", ".toml", ".tf")]
    return set(re.findall(r"\w+", "\n".join(texts)))
