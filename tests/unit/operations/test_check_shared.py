"""A check of DynamoDB and Kafka finds each damage that stored data can show there, and nothing in a sound one."""

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
from tests.unit.operations.shared_damages import DAMAGES, Damage
from tests.unit.operations.shared_town import SharedTown, shared_town
from tests.unit.operations.stored_town import ANN, BOB, CID, DIRECT, EMPTY, GROUP, T_S, session_of

Told = tuple[str, str]  # an invariant, and whom it accuses


async def checked(town: SharedTown, *, recheck_s: float = 0.0) -> CheckReport:
    async with town.inspection() as (rows, records):
        return await check(rows, records, now_ms=town.clock.now_ms, recheck_s=recheck_s)


@pytest.fixture(scope="module")
def told() -> tuple[dict[Damage, Told], list[Told]]:
    """What a check of a town with every damage must tell, by damage, and what it tells."""

    async def run() -> tuple[dict[Damage, Told], list[Told]]:
        async with shared_town() as town:
            await town.populate()
            expected: dict[Damage, Told] = {}
            for invariant, damages in DAMAGES.items():
                for damage in damages:
                    chat_id = f"chat_{damage.__name__}"
                    await town.add_group(chat_id)
                    for _ in range(3):
                        await town.send(chat_id, ANN)
                    expected[damage] = invariant, await damage(town, chat_id)
            report = await checked(town)
            return expected, [(each.invariant, each.subject) for each in report.shown]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seriatim.domain.limits.CHECK_VIOLATIONS_SHOWN_MAX", 100)
        return asyncio.run(run())


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damage, id=f"{invariant}-{damage.__name__}")
        for invariant, damages in DAMAGES.items()
        for damage in damages
    ],
)
def test_a_damage_is_found_and_named(told: tuple[dict[Damage, Told], list[Told]], damage: Damage) -> None:
    expected, found = told
    assert expected[damage] in found


def test_what_is_sound_is_not_accused_because_of_damage_elsewhere(
    told: tuple[dict[Damage, Told], list[Told]],
) -> None:
    accused = [subject.partition(" ")[0] for _, subject in told[1]]
    assert not {GROUP, DIRECT, EMPTY} & {*accused}


def test_every_invariant_that_is_checked_has_a_damage_that_proves_it_here_too() -> None:
    assert list(DAMAGES) == [each.id for each in INVARIANTS.values() if not each.shown_by]


async def test_a_sound_deployment_breaks_nothing_and_every_invariant_was_looked_at() -> None:
    async with shared_town() as town:
        await town.populate()
        report = await checked(town)
        asked = [*town.looking.calls]
    assert (report.violations, report.withdrawn, report.shown) == (0, 0, ())
    assert [line.invariant for line in report.lines if not line.looked_at or line.not_looked_at] == []
    assert not {*asked} - {"BatchGetItem", "DescribeTable", "GetItem", "Query", "Scan"}


async def test_without_an_event_log_its_invariants_are_not_looked_at_and_the_others_are() -> None:
    async with shared_town() as town:
        await town.populate()
        await town.rows.drop(tables.COUNTERS, {"chat_id": EMPTY})
        rows = DynamoInspection(TableReader(town.looking, prefix=PREFIX))
        report = await check(rows, NoRecords(), now_ms=town.clock.now_ms, recheck_s=0.0)
    assert [violation.invariant for violation in report.shown] == ["I5"]
    unseen = {line.invariant: line.not_looked_at for line in report.lines if line.not_looked_at}
    assert unseen == dict.fromkeys(events.INVARIANTS, "no event log was given")
    assert [line.invariant for line in report.lines if not line.looked_at] == [*unseen]


class Restless(DynamoInspection):
    """Of whatever it shows, the member, the session or the unpublished message is gone before anybody looks again.

    And back before the next pass: so each of them looks wrong twice, if one trusts what was read first.
    """

    def __init__(self, town: SharedTown) -> None:
        super().__init__(TableReader(town.looking, prefix=PREFIX))
        self._town = town
        self._session = session_of(CID, town.clock.now_ms())

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
        log, now_ms = self._town.log, self._town.clock.now_ms()
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
        catalog, now_ms = self._town.catalog, self._town.clock.now_ms()
        if applies:
            await catalog.leave(GROUP, CID, now_ms=now_ms, timeout_s=T_S)
        yield
        if applies:
            await catalog.add_member(GROUP, CID, Role.MEMBER, by=ANN, now_ms=now_ms, timeout_s=T_S)

    @asynccontextmanager
    async def _signed_out(self, applies: bool) -> AsyncIterator[None]:
        if applies:
            await self._town.accounts.revoke(self._session.session_id, timeout_s=T_S)
        yield
        if applies:
            await self._town.accounts.open_session(self._session, timeout_s=T_S)


async def test_what_changes_between_two_reads_is_not_accused() -> None:
    async with shared_town() as town:
        await town.populate()
        now_ms = town.clock.now_ms()
        await town.log.allocate(GROUP, 1, published_through=5, published_message=5, now_ms=now_ms, timeout_s=T_S)
        await town.rows.drop(tables.COUNTERS, {"chat_id": EMPTY})  # so that there is a second pass
        report = await check(Restless(town), NoRecords(), now_ms=town.clock.now_ms, recheck_s=0.0)
    assert [(violation.invariant, violation.subject) for violation in report.shown] == [("I5", EMPTY)]


async def test_a_busy_deployment_is_not_accused() -> None:
    """The same members come and go and the same chats are written to all the time, whatever is read in between."""
    async with shared_town() as town:
        await town.populate()
        done = False

        async def write(chat_id: str) -> None:
            while not done:
                receipts = await asyncio.gather(*(town.send(chat_id, ANN, f"{number}") for number in range(3)))
                await town.ingest.acknowledge(BOB, chat_id, sequence=receipts[-1].sequence, timeout_s=T_S)
                await asyncio.sleep(0.1)  # or the checks would have ever more to read

        async def come_and_go() -> None:
            while not done:
                now_ms = town.clock.now_ms()
                await town.catalog.leave(GROUP, CID, now_ms=now_ms, timeout_s=T_S)
                await town.catalog.add_member(GROUP, CID, Role.MEMBER, by=ANN, now_ms=now_ms, timeout_s=T_S)

        async with asyncio.TaskGroup() as busy:
            for work in (write(GROUP), write(DIRECT), come_and_go()):
                busy.create_task(work)
            reports = [await checked(town, recheck_s=0.01) for _ in range(3)]
            done = True
        assert [report.shown for report in reports] == [()] * len(reports)
        assert reports[-1].rows > reports[0].rows
