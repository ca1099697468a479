"""The eleven tables of a distributed deployment (docs/spec/data.md#tables): made once, and compared with what is there.

What can be changed in place is corrected by `create`. A wrong key or index is not: that needs a new table and a person.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.ports.clock import Clock
from seriatim.ports.tables import Attribute, Index, Table, TableControl

_CHAT = Attribute("chat_id")
_USER = Attribute("user_id")

TABLES: tuple[Table, ...] = (
    Table(
        name="users",
        partition=_USER,
        indexes=(Index(name="phone_number-index", partition=Attribute("phone_number"), projection="KEYS_ONLY"),),
        protected=True,
    ),
    Table(name="chats", partition=_CHAT, protected=True),
    Table(
        name="chat_memberships",
        partition=_CHAT,
        sort=_USER,
        indexes=(Index(name="user_chats-index", partition=_USER, sort=_CHAT, projection="ALL"),),
        protected=True,
    ),
    Table(name="messages", partition=_CHAT, sort=Attribute("sequence", "N"), protected=True),
    Table(
        name="chat_counters",
        partition=_CHAT,
        indexes=(
            Index(
                name="dirty-index",
                partition=Attribute("dirty_bucket", "N"),
                sort=Attribute("dirty_at"),
                projection="KEYS_ONLY",
            ),
        ),
        protected=True,
    ),
    Table(name="idempotency_keys", partition=_CHAT, sort=Attribute("client_message_id"), expiry="ttl"),
    Table(name="delivery_state", partition=_USER, sort=_CHAT, protected=True),
    Table(
        name="sessions",
        partition=Attribute("session_id"),
        indexes=(Index(name="user_sessions-index", partition=_USER, projection="ALL"),),
        expiry="ttl",
    ),
    Table(name="otp_requests", partition=Attribute("phone_hash"), expiry="ttl"),
    Table(name="direct_chat_index", partition=Attribute("pair_key")),
    Table(name="api_idempotency", partition=Attribute("scope"), sort=Attribute("idem_key"), expiry="ttl"),
)


class TableDifference(msgspec.Struct, frozen=True):
    """What differs from the definition."""

    table: str
    what: str
    expected: str
    found: str


class TablesNotReady(ServiceUnavailable):
    """The store accepted the request and has not completed it yet. The command may be run again."""


async def create(
    control: TableControl, clock: Clock, *, prefix: str = "", report: Callable[[str], None] = lambda line: None
) -> Sequence[str]:
    """Creates the tables that are missing and corrects what can be changed in place. Returns the names of the new ones.

    May be repeated, and continued after an interruption.
    """
    wanted = definitions(prefix)
    missing = [each for each in wanted if await control.describe(each.name, timeout_s=limits.API_TIMEOUT_S) is None]
    for table in missing:
        await control.create(table, timeout_s=limits.API_TIMEOUT_S)
        report(f"{table.name}: made")
    for table in wanted:
        await _until_ready(control, clock, table)
        report(f"{table.name}: ready")
    return [table.name for table in missing]


async def verify(control: TableControl, *, prefix: str = "") -> Sequence[TableDifference]:
    """How the tables that are there differ from what they should be; empty when all is well."""
    found: list[TableDifference] = []
    for table in definitions(prefix):
        there = await control.describe(table.name, timeout_s=limits.API_TIMEOUT_S)
        found += compare(table, there)
    return found


def definitions(prefix: str = "") -> list[Table]:
    return [msgspec.structs.replace(table, name=prefix + table.name) for table in TABLES]


def compare(wanted: Table, there: Table | None) -> list[TableDifference]:
    name = wanted.name
    if there is None:
        return [TableDifference(name, "table", "there", "missing")]
    found = [
        _differs(name, "partition key", _key(wanted.partition), _key(there.partition)),
        _differs(name, "sort key", _key(wanted.sort), _key(there.sort)),
        _differs(name, "expiry by", wanted.expiry or "none", there.expiry or "none"),
        _differs(name, "billing", _billing(wanted), _billing(there)),
    ]
    if there.backups is not None:
        found.append(_differs(name, "point-in-time recovery", _switch(wanted.backups), _switch(there.backups)))
    if there.protected is not None:
        found.append(_differs(name, "deletion protection", _switch(wanted.protected), _switch(there.protected)))
    ours = {index.name: _index(index) for index in wanted.indexes}
    theirs = {index.name: _index(index) for index in there.indexes}
    found += [
        _differs(name, f"index {index}", ours.get(index, "none"), theirs.get(index, "none"))
        for index in dict.fromkeys([*ours, *theirs])
    ]
    return [each for each in found if each is not None]


async def _until_ready(control: TableControl, clock: Clock, table: Table) -> None:
    deadline = clock.monotonic() + limits.TABLE_ACTIVE_S
    while not (
        await control.is_ready(table.name, timeout_s=limits.API_TIMEOUT_S)
        and await control.adjust(table, timeout_s=limits.API_TIMEOUT_S)
    ):
        if clock.monotonic() >= deadline:
            raise TablesNotReady(
                f"{table.name} is not ready after {limits.TABLE_ACTIVE_S:.0f} s; run the command again later"
            )
        await asyncio.sleep(limits.TABLE_POLL_S)


def _differs(table: str, what: str, expected: str, found: str) -> TableDifference | None:
    return None if expected == found else TableDifference(table, what, expected, found)


def _key(attribute: Attribute | None) -> str:
    return "none" if attribute is None else f"{attribute.name} ({attribute.kind})"


def _index(index: Index) -> str:
    return f"{_key(index.partition)} / {_key(index.sort)}, {index.projection}"


def _billing(table: Table) -> str:
    return "on demand" if table.on_demand else "provisioned"


def _switch(on: bool | None) -> str:
    return "on" if on else "off"
