"""The tables of a store that does not create them by itself: their shape, and how an operator creates them.

Servers never create a table: a missing one is a mistake of the deployment, not a reason to start empty.
"""

from typing import Protocol

import msgspec


class Attribute(msgspec.Struct, frozen=True):
    """A part of a key. `kind` is S for texts, N for numbers."""

    name: str
    kind: str = "S"


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """Other keys to the same rows. `projection` is ALL or KEYS_ONLY."""

    name: str
    partition: Attribute
    sort: Attribute | None = None
    projection: str


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table without its rows. `expiry` is the attribute that says when a row may be removed.

    `backups` and `protected` are None where the store does not know such a thing.
    """

    name: str
    partition: Attribute
    sort: Attribute | None = None
    indexes: tuple[Index, ...] = ()
    expiry: str | None = None
    on_demand: bool = True
    backups: bool | None = True
    protected: bool | None = False


class TableControl(Protocol):
    """All calls may be repeated. Names are those of the store, with the deployment's prefix."""

    async def describe(self, name: str, *, timeout_s: float) -> Table | None:
        """The table as it is, None if there is none."""
        ...

    async def is_ready(self, name: str, *, timeout_s: float) -> bool:
        """Whether the table and its indexes can be used."""
        ...

    async def create(self, table: Table, *, timeout_s: float) -> None:
        """Begins to create the table, without expiry and backups. One that is there stays as it is."""
        ...

    async def adjust(self, table: Table, *, timeout_s: float) -> bool:
        """Sets what can be changed in place, where the store knows it: expiry, backups, protection.

        Says whether all of it is set: the store may need some time first.
        """
        ...
