"""One small change to one source file, as text: so that it can be shown, applied, and recognised again."""

import ast
import difflib
from pathlib import Path

import msgspec


class Mutation(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Bytes `start` to `end` of the file become `new`. `what` says so in words; `line` is where it begins."""

    path: str  # below src/seriatim
    start: int
    end: int
    new: str
    line: int
    what: str
    source: str  # the line as it is, without its indentation
    becomes: str  # and as the mutant has it

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    def applied(self, text: str) -> str:
        raw = text.encode()
        return (raw[: self.start] + self.new.encode() + raw[self.end :]).decode()

    def is_python(self, text: str) -> bool:
        try:
            ast.parse(self.applied(text))
        except SyntaxError:
            return False
        return True

    def diff(self, text: str) -> str:
        before, after = text.splitlines(keepends=True), self.applied(text).splitlines(keepends=True)
        return "".join(difflib.unified_diff(before, after, f"a/{self.path}", f"b/{self.path}", n=3))


def write(mutation: Mutation, source: Path) -> None:
    """`source`: the folder src/seriatim of a copy of the tree."""
    file = source / mutation.path
    file.write_text(mutation.applied(file.read_text(encoding="utf-8")), encoding="utf-8")
