"""Citations of the specification: what can be cited, what is cited, and what of that leads nowhere.

The forms are those of docs/spec/README.md. In Python only comments and texts are read, not names; in Markdown all but
fenced code.
"""

import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tests.tidy.rules import Finding

PAGES = ("websocket", "rest", "data", "delivery", "records")

_ROW = re.compile(r"^\| \*\*([A-Z][1-9]\d?|ADR-\d{3} [^*]+)\*\* \|", re.M)
_RECORD = re.compile(r"^## (ADR-\d{3})\b", re.M)
_HEADING = re.compile(r"^#+ (.+)$", re.M)
_FENCE = re.compile(r"^```.*?^```", re.M | re.S)

_IDENTIFIER = re.compile(r"(?<![\w%/.#&])[A-Z][1-9]\d?(?![\w%])")
_RANGE = re.compile(r"(?<![\w%/.#&])([A-Z])([1-9]\d?)(?:-|\s+to\s+)\1([1-9]\d?)(?![\w%])")
_PAGE = re.compile(rf"([\w./-]*?)\b({'|'.join(PAGES)})\.md(#[\w-]*)?(,?\s+(?:sections?\s+)?\d[\d.]*\b)?")
_ANY_PAGE = re.compile(r"docs/spec/([\w-]+)\.md")
_ADR = re.compile(r"\bADR-\d+(?:\s+(?:[Cc]ontract|[Ss]ections?|[Pp]art|[Aa]ppendix)\s+[\w.]+)?")
_DECISION = re.compile(r"(?:docs/decisions/|\bdecisions?\s+)(\d{4})\b")
_NAKED_DECISION = re.compile(r"\((00\d\d)\)")
_SECTION = re.compile(r"\u00a7|(?<!\bRFC \d{4} )(?<!\bADR-\d{3} )\bsections?\s+\d")
_TEST = re.compile(r"^(?:async )?def test_((?:[shFR]\d+_)+)", re.M)
_FORMS = (_IDENTIFIER, _PAGE, _ANY_PAGE, _ADR, _DECISION, _NAKED_DECISION, _SECTION, _TEST)


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What can be cited: rows by identifier with the pages that define them, headings by page, records, decisions."""

    rows: Mapping[str, Sequence[str]]
    headings: Mapping[str, Sequence[str]]
    records: Sequence[str]
    decisions: Sequence[str]

    def defined_twice(self) -> list[str]:
        return [f"{row} is defined in {', '.join(pages)}" for row, pages in self.rows.items() if len(pages) > 1]


def read_spec(pages: Mapping[str, str], decisions: Iterable[str]) -> Spec:
    """`pages`: texts of docs/spec by the name of the page, without its ending. `decisions`: names of files."""
    rows: dict[str, list[str]] = {}
    for name, text in pages.items():
        for row in _ROW.findall(text):
            rows.setdefault(row, []).append(name)
    return Spec(
        rows=rows,
        headings={name: [slug(title) for title in _HEADING.findall(text)] for name, text in pages.items()},
        records=[record for text in pages.values() for record in _RECORD.findall(text)],
        decisions=[name[:4] for name in decisions if re.match(r"\d{4}-", name)],
    )


def slug(title: str) -> str:
    """A heading as links name it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def broken(source: str, path: str, spec: Spec) -> list[Finding]:
    """Every citation in this file that leads nowhere, or has a form that no reader can follow, by line."""
    found: list[Finding] = []
    for line, text in _python(source) if path.endswith(".py") else _markdown(source):
        for at, what in _wrong(text, spec, python=path.endswith(".py")):
            found.append(Finding(path, line + text.count("\n", 0, at), what))
    return sorted(dict.fromkeys(found))


def cited(source: str, path: str) -> list[str]:
    """Every identifier and page that is cited in this file: so that a test can see that something is read at all."""
    texts = [text for _, text in (_python(source) if path.endswith(".py") else _markdown(source))]
    return [match.group() for text in texts for match in (*_IDENTIFIER.finditer(text), *_ANY_PAGE.finditer(text))]


# --- what is read of a file ------------------------------------------------------------------------------------------


def _python(source: str) -> Iterator[tuple[int, str]]:
    """Comments and texts with their first line, and the numbers that tests carry in their names."""
    if not any(form.search(source) for form in _FORMS):  # nothing to be found in its comments and texts either
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "COMMENT" or kind == "FSTRING_MIDDLE" or (kind == "STRING" and not _is_bytes(token.string)):
            yield token.start[0], token.string
    for match in _TEST.finditer(source):
        numbers = match.group(1).strip("_").split("_")
        yield source.count("\n", 0, match.start()) + 1, " ".join(numbers).upper()


def _is_bytes(literal: str) -> bool:
    return "b" in literal[: literal.index(literal[-1])].lower()


def _markdown(source: str) -> Iterator[tuple[int, str]]:
    """All of it, with empty lines where fenced code was."""
    yield 1, _FENCE.sub(lambda fence: "\n" * fence.group().count("\n"), source)


# --- what is wrong with a citation -----------------------------------------------------------------------------------


def _wrong(text: str, spec: Spec, *, python: bool) -> Iterator[tuple[int, str]]:
    yield from _identifiers(text, spec)
    yield from _pages(text, spec, python=python)
    for match in _ADR.finditer(text):
        cite = " ".join(match.group().split())
        if cite not in spec.records and cite not in spec.rows:
            yield match.start(), f"{cite} is no heading or row of docs/spec/records.md"
    for match in _DECISION.finditer(text):
        if match.group(1) not in spec.decisions:
            yield match.start(), f"there is no decision {match.group(1)}"
    for match in _NAKED_DECISION.finditer(text) if python else ():
        yield match.start(), f"write docs/decisions/{match.group(1)}"
    for match in _SECTION.finditer(text):
        yield match.start(), "cite a heading by its name: sections have no numbers"


def _identifiers(text: str, spec: Spec) -> Iterator[tuple[int, str]]:
    for match in _IDENTIFIER.finditer(text):
        if match.group() not in spec.rows:
            yield match.start(), f"{match.group()} is defined nowhere in docs/spec"
    for match in _RANGE.finditer(text):
        letter, first, last = match.group(1), int(match.group(2)), int(match.group(3))
        missing = [f"{letter}{number}" for number in range(first, last + 1) if f"{letter}{number}" not in spec.rows]
        if missing or first >= last:
            yield match.start(), f"{match.group()} is no range of identifiers: {', '.join(missing) or 'it is empty'}"


def _pages(text: str, spec: Spec, *, python: bool) -> Iterator[tuple[int, str]]:
    for match in _ANY_PAGE.finditer(text):
        if match.group(1) not in spec.headings:
            yield match.start(), f"there is no {match.group()}"
    for match in _PAGE.finditer(text):
        folder, page, anchor, number = match.groups()
        if number is not None:
            yield match.start(), f"{match.group()}: cite a heading by its name"
        elif anchor is not None and page in spec.headings and anchor[1:] not in spec.headings[page]:
            yield match.start(), f"docs/spec/{page}.md has no heading {anchor}"
        elif python and folder != "docs/spec/" and not _is_only(text, match.group()):
            yield match.start(), f"{match.group()}: write docs/spec/{page}.md"


def _is_only(literal: str, name: str) -> bool:
    """A part of a path, put together by code."""
    return literal.strip("\"'") == name
