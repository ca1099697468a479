"""A check of DynamoDB and Kafka finds each violation that stored data can show there, and nothing in a sound one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from seriatim.domain.account import Session
from seriatim.domain.chat import Chat, Membership, Role
from seriatim.engines.dynamodb import store as tables
from seriatim.engines.dynamodb.inspection import DynamoInspection
from seriatim.engines.dynamodb.table_reader import TableReader
from seriatim.operations.check import events
from seriatim.operations.check.findings import CheckReport
from seriatim.operations.check.invariants import INVARIANTS
from seriatim.operations.check.run import check
from seriatim.ports.inspection import UserChat, UserSession
from seriatim.runtime.tools.inspection import NoRecords
from tests.support.real_dynamodb import PREFIX
from tests.unit.operations.populated_store import ANN, BOB, CID, DIRECT, EMPTY, GROUP, T_S, session_of
from tests.unit.operations.shared_store import PopulatedSharedStore, shared_store
from tests.unit.operations.shared_violations import VIOLATIONS, Violation

Reported = tuple[str, str]  # an invariant, and whom it accuses


async def checked(populated: PopulatedSharedStore, *, recheck_s: float = 0.0) -> CheckReport:
    async with populated.inspection() as (rows, records):
        return await check(rows, records, now_ms=populated.clock.now_ms, recheck_s=recheck_s)


@pytest.fixture(scope="module")
def reported() -> tuple[dict[Violation, Reported], list[Reported]]:
    """What a check of a store with every violation must report, by violation, and what it reports."""

    async def run() -> tuple[dict[Violation, Reported], list[Reported]]:
        async with shared_store() as populated:
            await populated.populate()
            expected: dict[Violation, Reported] = {}
            for invariant, violations in VIOLATIONS.items():
                for violation in violations:
                    chat_id = f"chat_{violation.__name__}"
                    await populated.add_group(chat_id)
                    for _ in range(3):
                        await populated.send(chat_id, ANN)
                    expected[violation] = invariant, await violation(populated, chat_id)
            report = await checked(populated)
            return expected, [(each.invariant, each.subject) for each in report.shown]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seriatim.domain.limits.CHECK_VIOLATIONS_SHOWN_MAX", 100)
        return asyncio.run(run())


@pytest.mark.parametrize(
    "violation",
    [
        pytest.param(violation, id=f"{invariant}-{violation.__name__}")
        for invariant, violations in VIOLATIONS.items()
        for violation in violations
    ],
)
def test_a_violation_is_found_and_named(
    reported: tuple[dict[Violation, Reported], list[Reported]], violation: Violation
) -> None:
    expected, found = reported
    assert expected[violation] in found


def test_what_is_sound_is_not_accused_because_of_a_violation_elsewhere(
    reported: tuple[dict[Violation, Reported], list[Reported]],
) -> None:
    accused = [subject.partition(" ")[0] for _, subject in reported[1]]
    assert not {GROUP, DIRECT, EMPTY} & {*accused}


def test_every_invariant_that_is_checked_has_a_violation_that_proves_it_here_too() -> None:
    assert list(VIOLATIONS) == [each.id for each in INVARIANTS.values() if not each.shown_by]


async def test_a_sound_deployment_breaks_nothing_and_every_invariant_was_looked_at() -> None:
    async with shared_store() as populated:
        await populated.populate()
        report = await checked(populated)
        asked = [*populated.looking.calls]
    assert (report.violations, report.withdrawn, report.shown) == (0, 0, ())
    assert [line.invariant for line in report.lines if not line.looked_at or line.not_looked_at] == []
    assert not {*asked} - {"BatchGetItem", "DescribeTable", "GetItem", "Query", "Scan"}


async def test_without_an_event_log_its_invariants_are_not_looked_at_and_the_others_are() -> None:
    async with shared_store() as populated:
        await populated.populate()
        await populated.rows.drop(tables.COUNTERS, {"chat_id": EMPTY})
        rows = DynamoInspection(TableReader(populated.looking, prefix=PREFIX))
        report = await check(rows, NoRecords(), now_ms=populated.clock.now_ms, recheck_s=0.0)
    assert [violation.invariant for violation in report.shown] == ["I5"]
    unseen = {line.invariant: line.not_looked_at for line in report.lines if line.not_looked_at}
    assert unseen == dict.fromkeys(events.INVARIANTS, "no event log was given")
    assert [line.invariant for line in report.lines if not line.looked_at] == [*unseen]


class Restless(DynamoInspection):
    """Of whatever it shows, the member, the session or the unpublished message is gone before it is read again.

    And back before the next pass: so each of them looks wrong twice, if one trusts what was read first.
    """

    def __init__(self, populated: PopulatedSharedStore) -> None:
        super().__init__(TableReader(populated.looking, prefix=PREFIX))
        self._populated = populated
        self._session = session_of(CID, populated.clock.now_ms())

    async def chats(self) -> AsyncIterator[Chat]:
        async for chat in super().chats():
            async with self._member_away(chat.chat_id == GROUP):
                yield chat

    async def memberships(self) -> AsyncIterator[Membership]:
        async for member in super().memberships():
            async with self._member_away((member.chat_id, member.user_id) == (GROUP, CID)):
                yield member

    async def user_chats(self) -> AsyncIterator[UserChat]:
        async for row in super().user_chats():
            async with self._member_away((row.chat_id, row.user_id) == (GROUP, CID)):
                yield row

    async def sessions(self) -> AsyncIterator[Session]:
        async for session in super().sessions():
            async with self._signed_out(session.user_id == CID):
                yield session

    async def user_sessions(self) -> AsyncIterator[UserSession]:
        async for row in super().user_sessions():
            async with self._signed_out(row.user_id == CID):
                yield row

    async def is_listed_dirty(self, chat_id: str, *, dirty_at_ms: int) -> bool:
        log, now_ms = self._populated.log, self._populated.clock.now_ms()
        counter = await self.counter(chat_id)
        assert counter is not None
        await log.flush(chat_id, published_through=counter.allocated, published_message=5, timeout_s=T_S)
        listed = await super().is_listed_dirty(chat_id, dirty_at_ms=dirty_at_ms)
        await log.allocate(
            chat_id, 1, published_through=counter.allocated, published_message=5, now_ms=now_ms, timeout_s=T_S
        )
        return listed

    @asynccontextmanager
    async def _member_away(self, applies: bool) -> AsyncIterator[None]:
        catalog, now_ms = self._populated.catalog, self._populated.clock.now_ms()
        if applies:
            await catalog.leave(GROUP, CID, now_ms=now_ms, timeout_s=T_S)
        yield
        if applies:
            await catalog.add_member(GROUP, CID, Role.MEMBER, by=ANN, now_ms=now_ms, timeout_s=T_S)

    @asynccontextmanager
    async def _signed_out(self, applies: bool) -> AsyncIterator[None]:
        if applies:
            await self._populated.accounts.revoke(self._session.session_id, timeout_s=T_S)
        yield
        if applies:
            await self._populated.accounts.open_session(self._session, timeout_s=T_S)


async def test_what_changes_between_two_reads_is_not_accused() -> None:
    async with shared_store() as populated:
        await populated.populate()
        now_ms = populated.clock.now_ms()
        await populated.log.allocate(GROUP, 1, published_through=5, published_message=5, now_ms=now_ms, timeout_s=T_S)
        await populated.rows.drop(tables.COUNTERS, {"chat_id": EMPTY})  # so that there is a second pass
        report = await check(Restless(populated), NoRecords(), now_ms=populated.clock.now_ms, recheck_s=0.0)
    assert [(violation.invariant, violation.subject) for violation in report.shown] == [("I5", EMPTY)]


async def test_a_busy_deployment_is_not_accused() -> None:
    """The same members come and go and the same chats are written to all the time, whatever is read in between."""
    async with shared_store() as populated:
        await populated.populate()
        done = False

        async def write(chat_id: str) -> None:
            while not done:
                receipts = await asyncio.gather(*(populated.send(chat_id, ANN, f"{number}") for number in range(3)))
                await populated.ingest.acknowledge(BOB, chat_id, sequence=receipts[-1].sequence, timeout_s=T_S)
                await asyncio.sleep(0.1)  # or the checks would have ever more to read

        async def come_and_go() -> None:
            while not done:
                now_ms = populated.clock.now_ms()
                await populated.catalog.leave(GROUP, CID, now_ms=now_ms, timeout_s=T_S)
                await populated.catalog.add_member(GROUP, CID, Role.MEMBER, by=ANN, now_ms=now_ms, timeout_s=T_S)

        async with asyncio.TaskGroup() as busy:
            for work in (write(GROUP), write(DIRECT), come_and_go()):
                busy.create_task(work)
            reports = [await checked(populated, recheck_s=0.01) for _ in range(3)]
            done = True
        assert [report.shown for report in reports] == [()] * len(reports)
        assert reports[-1].rows > reports[0].rows
