"""`seriatim check`: the invariants that stored data can show, over whatever engine keeps the data.

It runs beside working servers, and rows are read at different times. The side that is written later is read first and
the authority last, so a write in flight looks right; what still looks wrong is checked once more, some seconds later,
before it is reported. Rows that may go or change between two reads are then read again, several times if need be.
"""

import asyncio
from collections.abc import Callable

from seriatim.domain import limits
from seriatim.operations.check.chats import ChatCheck
from seriatim.operations.check.events import EventCheck
from seriatim.operations.check.findings import CheckReport, Findings
from seriatim.operations.check.members import MemberCheck
from seriatim.operations.check.people import PeopleCheck
from seriatim.ports.inspection import StoredRecords, StoredRows


async def check(
    rows: StoredRows,
    records: StoredRecords,
    *,
    now_ms: Callable[[], int],
    recheck_s: float,
    progress: Callable[[int], None] = lambda count: None,
) -> CheckReport:
    """Keeps two numbers per chat in memory, however many messages there are. `progress` gets the rows read so far."""
    first = await _pass(rows, records, Findings(progress), now_ms)
    if not first.total:
        return first.report()
    await asyncio.sleep(recheck_s)
    await rows.refresh()
    second = Findings(progress, first, pause_s=min(limits.CHECK_REREAD_PAUSE_S, recheck_s))
    return (await _pass(rows, records, second, now_ms)).report()


async def _pass(rows: StoredRows, records: StoredRecords, findings: Findings, now_ms: Callable[[], int]) -> Findings:
    # Events are written after messages, messages after chats and members, and these after their users.
    await EventCheck(rows, records, findings, now_ms).run()
    await ChatCheck(rows, findings, now_ms).run()
    await MemberCheck(rows, findings).run()
    await PeopleCheck(rows, findings, now_ms).run()
    return findings
