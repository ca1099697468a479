"""Every citation of the specification leads somewhere; and each kind of broken one is shown by a snippet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.citations import PAGES, Spec, broken, cited, read_spec

ROOT = Path(__file__).parents[2]
CODE = ("src", "tests", "tools", "bench")
TEXTS = ("ARCHITECTURE.md", "README.md", "CONTRIBUTING.md")
EXAMPLES = "tests/tidy/test_citations.py"  # this file, which is full of broken ones


def _files() -> Iterator[Path]:
    for folder in CODE:
        yield from sorted((ROOT / folder).rglob("*.py"))
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from (ROOT / name for name in TEXTS)


def _spec() -> Spec:
    pages = sorted((ROOT / "docs" / "spec").glob("*.md"))
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    return read_spec({page.stem: page.read_text(encoding="utf-8") for page in pages}, [each.name for each in decisions])


def test_every_citation_leads_to_a_row_a_heading_a_record_or_a_decision() -> None:
    spec = _spec()
    findings = [
        finding
        for path in _files()
        if path.relative_to(ROOT).as_posix() != EXAMPLES
        for finding in broken(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix(), spec)
    ]
    assert not findings, "\n" + "\n".join(map(str, findings))


def test_an_identifier_is_defined_once() -> None:
    assert _spec().defined_twice() == []


def test_the_pages_and_the_citations_are_there_to_be_read() -> None:
    spec = _spec()
    assert sorted(spec.headings) == sorted((*PAGES, "README"))
    assert {row[0] for row in spec.rows} >= set("WIRDSHF")
    read = [path for path in _files() if path.relative_to(ROOT).parts[0] in ("src", "docs")]
    found = [each for path in read for each in cited(path.read_text(encoding="utf-8"), path.name)]
    assert len(found) > 500


# --- each rule can fail ----------------------------------------------------------------------------------------------

SMALL = read_spec(
    {
        "data": "## Kafka settings\n| **W1** | x |\n| **W2** | x |\n| **W4** | x |\n### `a`, and *b*\n",
        "rest": "| **S1** | x |\n",
        "records": "## ADR-009 Failures\n| **ADR-009 Contract 3** | x |\n",
        "README": "",
    },
    ["0033-appends.md", "README.md"],
)


@pytest.mark.parametrize(
    "text",
    [
        "W3 is missing",
        "see W1, W2 and W9",
        "W1-W4",
        "W2 to W4",
        "W2-W1",
        "(B2)",
        "docs/spec/data.md W7",
        "docs/spec/data.md#tables",
        "docs/spec/data.md#",
        "docs/spec/nothing.md",
        "spec/data.md#kafka-settings",
        "the table of data.md",
        "data.md 3.3",
        "docs/spec/data.md section 3",
        "rest.md, section 3.1",
        "as in section 6",
        "§ 6",
        "ADR-010",
        "ADR-009 Contract 4",
        "ADR-009 part 3",
        "ADR-009 Appendix A",
        "docs/decisions/0034",
        "decision 0012",
        "a reason (0033)",
    ],
)
def test_a_broken_citation_is_found_in_comments_and_in_docstrings(text: str) -> None:
    assert {each.line for each in broken(f"x = 1\n\n\n# {text}\n", "a.py", SMALL)} == {4}
    assert {each.line for each in broken(f'def f():\n    """First.\n\n    {text}\n    """\n', "a.py", SMALL)} == {4}


@pytest.mark.parametrize(
    "text",
    [
        "W1, W2; W4",
        "W1-W2",
        "W1 to W2",
        "docs/spec/data.md#kafka-settings",
        "docs/spec/data.md#a-and-b",
        "docs/spec/data.md W1-W2",
        "docs/spec/rest.md.",
        "ADR-009",
        "ADR-009's pauses",
        "ADR-009 Contract 3",
        "docs/decisions/0033",
        "decision 0033",
        "RFC 6455 section 1.3",
        "%D9%A1 and 0xF0, x1, V1Z, UTF8, P95th, [A-Z0-9]",
        "https://data.example/W9",
    ],
)
def test_what_leads_somewhere_and_what_is_no_citation_is_left_alone(text: str) -> None:
    assert broken(f"# {text}\n", "a.py", SMALL) == []


def test_names_and_bytes_are_no_citations() -> None:
    assert broken('W9 = b"W9", rb"W9", "data.md"\nx = W9\n', "a.py", SMALL) == []


def test_a_text_in_code_is_read() -> None:
    assert [each.line for each in broken('x = 1\nlooked(f"W9", "W1")\n', "a.py", SMALL)] == [2]


@pytest.mark.parametrize(
    ("name", "count"), [("test_s1_x", 0), ("test_s2_x", 1), ("test_S2_x", 0), ("test_h1_x", 1), ("test_s2_F3_x", 2)]
)
def test_the_numbers_in_the_names_of_tests_are_citations(name: str, count: int) -> None:
    """Other labels of tests are names of faults that were found once, and not of the specification."""
    found = broken(f"def {name}() -> None: ...\nasync def test_b2_x() -> None: ...\n", "a.py", SMALL)
    assert len(found) == count


def test_in_a_page_links_may_be_relative_and_fenced_code_is_not_read() -> None:
    page = "[data.md](../spec/data.md#kafka-settings), data.md\n\n```json\nW9\n```\nW9\n[x](data.md#tables)\n"
    assert [each.line for each in broken(page, "docs/a.md", SMALL)] == [6, 7]


def test_an_identifier_that_is_defined_twice_is_found() -> None:
    twice = read_spec({"data": "| **W1** | x |\n", "rest": "| **W1** | y |\n"}, [])
    assert twice.defined_twice() == ["W1 is defined in data, rest"]


def test_a_finding_names_file_and_line() -> None:
    [finding] = broken("# W9\n", "src/a.py", SMALL)
    assert str(finding) == "src/a.py:1: W9 is defined nowhere in docs/spec"
