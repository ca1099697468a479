"""Mutants that change nothing which a test could see, each with its reason: they are not tried again.

Known by file and by the line before and after, and not by its number, so that they survive edits elsewhere.
"""

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tools.mutate.mutation import Mutation

FILE = Path(__file__).with_name("equivalent.toml")


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    source: str
    becomes: str
    reason: str

    def covers(self, mutation: Mutation) -> bool:
        return (self.path, self.source, self.becomes) == (mutation.path, mutation.source, mutation.becomes)


def known(file: Path = FILE) -> Sequence[Equivalent]:
    return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")).get("mutant", []), list[Equivalent])


def entry(mutation: Mutation) -> str:
    """How to mark this one, but for the reason."""
    fields = {"path": mutation.path, "source": mutation.source, "becomes": mutation.becomes, "reason": "..."}
    return "[[mutant]]\n" + "".join(f"{name} = {_literal(value)}\n" for name, value in fields.items())


def without(mutations: Iterable[Mutation], equivalents: Sequence[Equivalent]) -> list[Mutation]:
    return [each for each in mutations if not any(known.covers(each) for known in equivalents)]


def _literal(value: str) -> str:
    return f"'{value}'" if "'" not in value else f"'''{value}'''"
