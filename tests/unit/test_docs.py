"""The pages keep up with the code: links lead somewhere, and what must be listed is listed."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from seriatim import api
from seriatim.api.core.route import Route
from seriatim.domain import errors
from seriatim.domain.errors import SeriatimError
from seriatim.protocol.asyncapi import ERROR_CODES, frame_types
from seriatim.protocol.frames import CloseReason
from seriatim.runtime.telemetry import metric_table

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "tests" / "README.md"]
CLIENTS = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
OPERATING = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    assert list(_broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_link_that_names_a_file_leads_to_that_file(page: Path) -> None:
    links = re.findall(r"\[`([\w./-]*(?:/|\.py)[\w./-]*)`\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if f"/{_place(link[0])}/" not in f"/{_place(link[1])}/"] == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    records = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    missing = [
        page.name
        for page in PAGES
        if page.name != "README.md" and f"{page.name})" not in (records if page.parent.name == "decisions" else index)
    ]
    assert missing == []


def test_the_guide_for_clients_names_every_close_reason_with_its_code() -> None:
    assert [each for each in CloseReason if f"| `{each.value}` | {each.code} |" not in CLIENTS] == []


def test_the_guide_for_clients_names_every_error_of_the_socket() -> None:
    assert [code for code in ERROR_CODES if f"`{code}`" not in CLIENTS] == []


def test_the_specification_and_the_guide_for_clients_name_every_frame() -> None:
    websocket = (ROOT / "docs" / "spec" / "websocket.md").read_text(encoding="utf-8")
    assert [name for name in frame_types() if f'{{"type":"{name}"' not in websocket] == []
    assert [name for name in frame_types() if f"`{name}`" not in CLIENTS] == []


def test_the_specification_names_every_route() -> None:
    rest = _unnamed((ROOT / "docs" / "spec" / "rest.md").read_text(encoding="utf-8"))
    named = [_unnamed(f"{route.method} {route.path}") for route in _routes()]
    assert len(named) > 20
    assert [each for each in named if not re.search(rf"{re.escape(each)}(?![\w/{{-])", rest)] == []


def test_the_guide_for_clients_says_of_every_http_status_whether_to_repeat() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, SeriatimError)]
    table = CLIENTS.partition("| status | repeat it? |")[2].partition("\n\n")[0]
    assert [kind.__name__ for kind in kinds if not re.search(rf"\b{kind.http_status}\b", table)] == []


def test_the_page_of_metrics_is_what_the_table_of_the_code_writes() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == metric_table.documentation(), "run `make spec`"


def test_the_guide_for_operators_names_no_metric_that_is_not_there() -> None:
    known = re.findall(r"^\| `(\w+)`", metric_table.documentation(), flags=re.MULTILINE)
    prefixes = tuple({name.partition("_")[0] + "_" for name in known})
    named = re.findall(r"`(\w+_(?:total|seconds|available|rate|active|max|open|depth|stalled|processes))`", OPERATING)
    assert [name for name in named if name.startswith(prefixes) and name not in known] == []


def _unnamed(text: str) -> str:
    """Parameters of paths have shorter names in the text."""
    return re.sub(r"\{\w+\}", "{}", text)


def _routes() -> Iterator[Route]:
    for each in pkgutil.iter_modules(api.__path__):
        if make := getattr(importlib.import_module(f"seriatim.api.{each.name}"), "routes", None):
            yield from make(*(Mock() for _ in inspect.signature(make).parameters))


def _broken_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (heading and heading not in _headings(target)):
            yield link


def _place(path: str) -> str:
    return path.removesuffix("/").removesuffix(".py").removesuffix("/__init__")


def _headings(page: Path) -> list[str]:
    """As the places that show Markdown name them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
