"""A check finds each violation that stored data can show, and nothing in a sound store, a busy one included."""

import ast
import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seriatim.domain import limits
from seriatim.domain.chat import Role
from seriatim.engines.embedded.storage.disk import Disk
from seriatim.engines.embedded.storage.rows import EVENT, chat_key
from seriatim.engines.embedded.storage.secondary import SecondaryStore
from seriatim.engines.embedded.tools.inspection import EmbeddedInspection
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations.check.findings import CheckReport
from seriatim.operations.check.invariants import INVARIANTS
from seriatim.operations.check.run import check
from seriatim.ports.event_log import MESSAGES
from tests.unit.operations import violations
from tests.unit.operations.populated_store import (
    ANN,
    BOB,
    DIRECT,
    EMPTY,
    GROUP,
    PopulatedStore,
    embedded_store,
    make_populated,
)
from tests.unit.operations.violations import VIOLATIONS, Rows, Violation

TESTS = Path(__file__).parents[2]
CHAT_ROW = chat_key(GROUP)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once; a test that changes it takes a copy."""
    path = tmp_path_factory.mktemp("populated") / "data"
    asyncio.run(make_populated(path))
    return path


@pytest.fixture
def populated(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "data"))


async def checked(path: Path, *, meanwhile: Callable[[], None] = lambda: None) -> CheckReport:
    """`meanwhile` happens between the first look and the second."""

    class Interrupted(EmbeddedInspection):
        async def refresh(self) -> None:
            meanwhile()
            await super().refresh()

    secondary = SecondaryStore(path)
    try:
        inspection = Interrupted(secondary)
        return await check(inspection, inspection, now_ms=SystemClock().now_ms, recheck_s=0.0)
    finally:
        secondary.close()


def violated(path: Path, violation: Violation) -> Path:
    disk = Disk(path / "store", create=False)
    violation(Rows(disk))
    disk.close()
    return path


async def test_a_sound_store_breaks_nothing_and_every_invariant_was_looked_at(pristine: Path) -> None:
    report = await checked(pristine)
    assert (report.violations, report.shown) == (0, ())
    assert [line.invariant for line in report.lines if not line.looked_at] == []


@pytest.mark.parametrize(
    ("invariant", "violation"),
    [
        pytest.param(invariant, violation, id=f"{invariant}-{violation.__name__}")
        for invariant, violations in VIOLATIONS.items()
        for violation in violations
    ],
)
async def test_a_violation_is_found_and_reported_with_what_to_do(
    populated: Path, invariant: str, violation: Violation
) -> None:
    report = await checked(violated(populated, violation))
    found = [violation for violation in report.shown if violation.invariant == invariant]
    assert found
    assert all(violation.subject and violation.what and violation.advice for violation in found)


def test_every_invariant_that_is_checked_has_a_violation_that_proves_it() -> None:
    assert list(VIOLATIONS) == [each.id for each in INVARIANTS.values() if not each.shown_by]


def test_all_40_invariants_of_the_records_are_in_the_table() -> None:
    assert [f"I{number}" for number in range(1, 41)] == [id for id in INVARIANTS if id.startswith("I")]


def test_the_tests_that_show_the_other_invariants_exist() -> None:
    for invariant in INVARIANTS.values():
        for test in invariant.shown_by:
            file, _, name = test.partition("::")
            tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
            names = [each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            assert name in names, f"{invariant.id} {invariant.name} names {test}"


# --- what is no violation ---------------------------------------------------------------------------------------------


async def test_what_is_right_at_the_second_reading_is_no_violation(populated: Path, pristine: Path) -> None:
    violated(populated, violations.a_wrong_number_of_members)
    violated(populated, violations.a_lost_counter)

    def finish_the_write() -> None:
        violated(populated, lambda rows: rows.put(CHAT_ROW, chat_row))

    chat_row = row(pristine, CHAT_ROW)
    report = await checked(populated, meanwhile=finish_the_write)
    assert [violation.invariant for violation in report.shown] == ["I5"]
    assert (report.violations, report.withdrawn) == (1, 1)


async def test_what_goes_wrong_only_after_the_first_reading_is_left_to_the_next_check(populated: Path) -> None:
    """It was looked at once: it may be a write in flight."""
    violated(populated, violations.a_wrong_number_of_members)
    report = await checked(
        populated, meanwhile=lambda: void(violated(populated, violations.a_watermark_beyond_the_end))
    )
    assert [violation.invariant for violation in report.shown] == ["R11"]


async def test_a_busy_server_raises_no_suspicion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are small, so that rows move from log to file to file while they are read."""
    monkeypatch.setattr("seriatim.domain.limits.STORE_MEMTABLE_BYTES", 65_536)
    async with embedded_store(tmp_path / "data") as populated:
        await populated.populate()
        sent = 0

        async def write(chat_id: str, members: bool) -> None:
            nonlocal sent
            while not done:
                receipt = await populated.send(chat_id, ANN, "x" * 500)
                await populated.ingest.acknowledge(BOB, chat_id, sequence=receipt.sequence, timeout_s=5)
                if members:
                    await come_and_go(populated, chat_id, f"user_{receipt.sequence}")
                sent += 1

        done, reports = False, list[CheckReport]()
        async with asyncio.TaskGroup() as writers:
            for chat_id, members in ((GROUP, True), (DIRECT, False), (EMPTY, True)):
                writers.create_task(write(chat_id, members))
            while len(reports) < 5 or sent < 300:
                reports.append(await asyncio.to_thread(lambda: asyncio.run(checked(populated.folder.path))))
            done = True
    assert [(report.violations, report.withdrawn, report.shown) for report in reports] == [(0, 0, ())] * len(reports)
    assert reports[-1].rows > reports[0].rows


async def test_what_was_killed_in_the_middle_is_sound(tmp_path: Path) -> None:
    """Allocated and not stored, stored and not published: gaps of a crash, which the next start settles."""
    async with embedded_store(tmp_path / "living") as populated:
        await populated.populate()
        await populated.log.allocate(GROUP, 3, published_through=5, published_message=5, now_ms=1, timeout_s=5)
        await populated.log.seal(GROUP, 7, created_at="", timeout_s=5)
        shutil.copytree(tmp_path / "living", tmp_path / "killed")
        assert (await checked(tmp_path / "killed")).shown == ()


async def test_events_that_retention_removed_are_not_missed(populated: Path) -> None:
    """Of a message older than what is kept, all that may be left is the duplicate that came last."""

    def age(rows: Rows) -> None:
        events = rows.events_of(MESSAGES, GROUP)
        for number in range(1, 6):
            rows.change_message(GROUP, number, created_at="2020-01-01T00:00:00.000Z")
            violations.change_event(rows, GROUP, number - 1, created_at="2020-01-01T00:00:00.000Z")
        duplicate = list(rows.events_of(MESSAGES, GROUP).values())[2]
        for key in events:
            rows.drop(key)
        rows.put(violations.later(list(events)[-1]), EVENT.encode(duplicate))

    assert (await checked(violated(populated, age))).shown == ()


async def test_an_event_that_was_published_twice_is_no_violation(populated: Path) -> None:
    def publish_again(rows: Rows) -> None:
        events = list(rows.events_of(MESSAGES, GROUP).items())
        rows.put(violations.later(events[-1][0]), EVENT.encode(events[1][1]))

    assert (await checked(violated(populated, publish_again))).shown == ()


async def test_a_key_that_expired_is_not_missed(populated: Path) -> None:
    def expire(rows: Rows) -> None:
        rows.drop(violations.key_of(rows.message(GROUP, 2)))
        rows.change_message(GROUP, 2, created_at="2020-01-01T00:00:00.000Z")
        violations.change_event(rows, GROUP, 1, created_at="2020-01-01T00:00:00.000Z")

    assert (await checked(violated(populated, expire))).shown == ()


async def test_sessions_that_expired_and_were_not_removed_yet_do_not_count(populated: Path) -> None:
    def expire(rows: Rows) -> None:
        for number in range(9):
            violations.put_session(rows, f"sess_{number}", expires_at_ms=1)

    assert (await checked(violated(populated, expire))).shown == ()


async def test_a_counter_that_was_repaired_above_watermarks_is_sound(populated: Path) -> None:
    def repair(rows: Rows) -> None:
        violations.a_watermark_beyond_the_end(rows)
        rows.change_standing(GROUP, allocated=6, published_through=6)
        rows.put(violations.slot(GROUP, 6), violations.tombstone(GROUP, 6))

    assert (await checked(violated(populated, repair))).shown == ()


async def test_a_thoroughly_broken_store_is_counted_in_full_and_shown_in_part(
    populated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than can be remembered for the second look: so many are no writes in flight."""
    monkeypatch.setattr("seriatim.domain.limits.CHECK_SUSPECTS_MAX", 3)

    def strangers(rows: Rows) -> None:
        for number in range(20):
            rows.put(violations.user_chat(f"user_{number}", GROUP), b"")

    report = await checked(violated(populated, strangers))
    assert (report.violations, len(report.shown)) == (20, limits.CHECK_VIOLATIONS_SHOWN_MAX)


async def come_and_go(populated: PopulatedStore, chat_id: str, user_id: str) -> None:
    now_ms = populated.clock.now_ms()
    await populated.catalog.add_member(chat_id, user_id, Role.MEMBER, by=ANN, now_ms=now_ms, timeout_s=5)
    await populated.catalog.leave(chat_id, user_id, now_ms=now_ms, timeout_s=5)


def row(path: Path, key: bytes) -> bytes:
    secondary = SecondaryStore(path)
    try:
        found = secondary.get(key)
        assert found is not None
        return found
    finally:
        secondary.close()


def void(_: object) -> None:
    """A lambda returns what it calls."""
