"""What a sweep must not do: leave behind what was refused, end at a damaged row, believe a clock that runs ahead."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import Throttled
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.sweep import CautiousSweeper, Sweeper, Swept
from seriatim.ports.event_log import MESSAGES
from tests.contract.store_data import CHAT
from tests.support.manual_clock import ManualClock
from tests.unit.engines.test_embedded_events import DAY_MS, NOON_MS, SIZES, append, keys

DAMAGED = b"\xc1"


class Restarting:
    """A process on a folder that is started again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.folder = Folder.open(path)

    async def start(self) -> tuple[Folder, EmbeddedEventLog]:
        await self.folder.close()
        self.folder = Folder.open(self._path)
        return self.folder, await EmbeddedEventLog.open(self.folder, SIZES)


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Restarting]:
    restarting = Restarting(tmp_path / "data")
    yield restarting
    await restarting.folder.close()


class WrongClock(ManualClock):
    """Its wall clock is ahead by so much."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def test_r4_events_whose_removal_was_refused_are_removed_by_the_next_sweep(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await EmbeddedEventLog.open(folder, SIZES)
    await append(log, b"0", b"1", b"2")
    sweeper = Sweeper(folder, log)
    late_ms = NOON_MS + limits.EVENT_RETENTION_S * 1000
    with monkeypatch.context() as busy:
        busy.setattr(limits, "WRITES_WAITING_MAX", 0)
        with pytest.raises(Throttled):
            await sweeper.sweep(late_ms)
    assert await sweeper.sweep(late_ms) == Swept(0, 3)
    assert log.records(MESSAGES) == []


async def test_r1_a_row_that_cannot_be_read_stays_and_does_not_end_the_sweep_of_the_others(folder: Folder) -> None:
    log = await EmbeddedEventLog.open(folder, SIZES)
    for key in ("a", "d"):
        await append(log, b"0", b"1", key=key)
    places = list(dict.fromkeys(record.partition for record in log.records(MESSAGES)))
    assert len(places) == 2
    await keys(folder, ("key-a", 100), ("key-b", 100), ("key-c", 100))
    damaged_key, damaged_event = rows.idempotency_key(rows.keys_prefix(CHAT), "key-a"), rows.event_key(places[0], 0)
    folder.disk.write({damaged_key: DAMAGED, damaged_event: DAMAGED})
    assert await Sweeper(folder, log).sweep(NOON_MS * 2) == Swept(2, 2)
    assert (folder.disk.get(damaged_key), folder.disk.get(damaged_event)) == (DAMAGED, DAMAGED)


async def test_a_wall_clock_days_ahead_removes_no_live_key_and_no_event_even_over_a_restart(
    process: Restarting,
) -> None:
    clock = WrongClock(NOON_MS)
    folder, log = await process.start()
    await append(log, b"0")
    await keys(folder, ("key-a", NOON_MS // 1000 + limits.KEY_LIFETIME_S))
    assert await CautiousSweeper(folder, log, clock).sweep(clock.now_ms()) == Swept(0, 0)
    clock.ahead_ms = 30 * DAY_MS
    held_back = Swept(0, 0, held_back_s=30 * DAY_MS / 1000)
    sweeper = CautiousSweeper(*await process.start(), clock)
    assert [await sweeper.sweep(clock.now_ms()) for _ in range(3)] == [held_back] * 3
    sweeper = CautiousSweeper(*await process.start(), clock)
    assert [await sweeper.sweep(clock.now_ms()) for _ in range(3)] == [held_back] * 3
    # In the end it is believed: there were days to correct it.
    clock.advance(30 * DAY_MS / 1000 / (limits.SWEEP_PACE_MAX_RATIO - 1))
    assert await sweeper.sweep(clock.now_ms()) == Swept(1, 1)


async def test_a_server_that_was_down_for_long_removes_what_expired_a_little_later(process: Restarting) -> None:
    clock = ManualClock(NOON_MS)
    folder, log = await process.start()
    await keys(folder, ("key-a", NOON_MS // 1000 + 100))
    await CautiousSweeper(folder, log, clock).sweep(clock.now_ms())
    clock.advance(3600)
    sweeper = CautiousSweeper(*await process.start(), clock)
    assert (await sweeper.sweep(clock.now_ms())).keys == 0
    clock.advance(101 / limits.SWEEP_PACE_MAX_RATIO)
    assert (await sweeper.sweep(clock.now_ms())).keys == 1
