"""Requests that are decided when their group begins: when they are decided and told, and what bad disks do to them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, OutcomeUnknown, Refused, SeriatimError, ServiceUnavailable, Throttled
from seriatim.engines.embedded.storage.disk import Changes, Disk, DiskError, Stalled
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.snapshot import WriteTransaction
from tests.unit.engines.slow_disk import OTHER, ROW, SOON_S, THIRD, SlowDisk, begun, put, until


class Asked:
    """One enlisted request: what it was told, and how often it was decided and applied."""

    def __init__(
        self,
        folder: Folder,
        row: bytes = ROW,
        value: bytes = b"1",
        *,
        within_s: float = SOON_S,
        decide: Callable[[WriteTransaction], None] | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        self.log: list[str] = []
        self.told: list[SeriatimError | None] = []
        self._decision = decide or (lambda transaction: transaction.put(row, value))
        self._then = then
        deadline = asyncio.get_running_loop().time() + within_s
        folder.writer.enlist("step", self._decide, self._tell, deadline=deadline, applied=self._applied)
        assert self.log == [], "decided or told from within"

    def _decide(self, transaction: WriteTransaction) -> None:
        self.log.append("decided")
        self._decision(transaction)

    def _applied(self) -> None:
        self.log.append("applied")

    def _tell(self, error: SeriatimError | None) -> None:
        self.log.append("told")
        self.told.append(error)
        if self._then is not None:
            self._then()

    async def outcome(self) -> SeriatimError | None:
        await until(lambda: bool(self.told))
        return self.told[0]


# --- when the disk is well --------------------------------------------------------------------------------------------


async def test_what_is_enlisted_is_decided_when_its_group_begins_and_told_when_it_is_synced(
    folder: Folder, slow: SlowDisk
) -> None:
    first = asyncio.ensure_future(put(folder, b"0", row=THIRD))
    await begun(slow)
    asked = [Asked(folder), Asked(folder, OTHER)]
    await asyncio.sleep(0.02)
    assert [each.log for each in asked] == [[], []], "the first sync is still under way"
    slow.begun.clear()
    slow.may_end.set()
    await first
    for each in asked:
        assert await each.outcome() is None
        assert each.log == ["decided", "applied", "told"]
    assert slow.syncs == 2


async def test_nothing_is_told_before_its_sync_has_ended(folder: Folder, slow: SlowDisk) -> None:
    asked = Asked(folder)
    await begun(slow)
    await asyncio.sleep(0.02)
    assert asked.log == ["decided"]
    slow.may_end.set()
    assert await asked.outcome() is None


async def test_a_decision_sees_those_of_its_group_and_a_failed_one_leaves_nothing(folder: Folder) -> None:
    seen: list[bytes | None] = []

    def refuse(transaction: WriteTransaction) -> None:
        transaction.put(ROW, b"spoilt")
        raise Refused("no")

    def fail(transaction: WriteTransaction) -> None:
        transaction.delete(ROW)
        raise RuntimeError("a bug")

    written = asyncio.ensure_future(put(folder, b"asked for before", row=OTHER))
    await asyncio.sleep(0)
    asked = [
        Asked(folder),
        Asked(folder, decide=refuse),
        Asked(folder, decide=fail),
        Asked(folder, decide=lambda transaction: seen.extend((transaction.get(ROW), transaction.get(OTHER)))),
    ]
    outcomes = [await each.outcome() for each in asked]
    await written
    assert [type(each) for each in outcomes] == [type(None), Refused, InternalError, type(None)]
    assert isinstance(outcomes[2], InternalError)
    assert isinstance(outcomes[2].__cause__, RuntimeError)
    assert [each.log for each in asked[1:3]] == [["decided", "told"]] * 2
    assert (seen, folder.disk.get(ROW)) == ([b"1", b"asked for before"], b"1")


async def test_who_is_told_may_ask_again_and_nobody_who_asked_meanwhile_is_forgotten(
    folder: Folder, slow: SlowDisk
) -> None:
    again: list[Asked] = []
    first = Asked(folder, then=lambda: again.append(Asked(folder, OTHER)))
    await begun(slow)
    meanwhile = asyncio.ensure_future(put(folder, b"3", row=THIRD))
    await asyncio.sleep(0)
    slow.may_end.set()
    assert await first.outcome() is None
    await meanwhile
    assert await again[0].outcome() is None
    assert slow.syncs == 2, "they went together"


async def test_who_is_asked_to_decide_may_ask_again(folder: Folder) -> None:
    again: list[Asked] = []
    first = Asked(folder, decide=lambda transaction: again.append(Asked(folder, OTHER)))
    assert await first.outcome() is None
    assert await again[0].outcome() is None
    assert folder.disk.get(OTHER) == b"1"


async def test_too_many_waiting_are_told_so(folder: Folder, slow: SlowDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITES_WAITING_MAX", 2)
    first = asyncio.ensure_future(put(folder, b""))
    await begun(slow)
    asked = [Asked(folder, b"C%d" % number) for number in range(3)]
    assert isinstance(await asked[2].outcome(), Throttled)
    slow.may_end.set()
    assert [await each.outcome() for each in asked[:2]] == [None, None]
    assert asked[2].log == ["told"]
    await first


async def test_a_folder_that_closes_answers_what_was_enlisted_and_refuses_the_rest(
    folder: Folder, slow: SlowDisk
) -> None:
    first = asyncio.ensure_future(put(folder, b"0", row=THIRD))
    await begun(slow)
    asked = Asked(folder)
    closing = asyncio.ensure_future(folder.close())
    await asyncio.sleep(0)
    refused = Asked(folder, OTHER)
    await asyncio.sleep(0.02)
    assert not closing.done()
    slow.may_end.set()
    await asyncio.gather(first, closing)
    assert asked.told == [None]
    assert [type(each) for each in refused.told] == [ServiceUnavailable]


# --- when the disk is slow --------------------------------------------------------------------------------------------


async def test_whose_time_is_up_before_the_decision_is_never_decided(folder: Folder, slow: SlowDisk) -> None:
    first = asyncio.ensure_future(put(folder, b"0", row=THIRD))
    await begun(slow)
    hasty, gone, patient = Asked(folder, within_s=0.02), Asked(folder, within_s=-1.0), Asked(folder, OTHER)
    assert isinstance(await hasty.outcome(), OutcomeUnknown)
    assert isinstance(await gone.outcome(), OutcomeUnknown)
    slow.may_end.set()
    assert await patient.outcome() is None
    await first
    assert (hasty.log, gone.log, folder.disk.get(ROW)) == (["told"], ["told"], None)


async def test_whose_time_is_up_after_the_decision_does_not_know_and_it_is_applied_all_the_same(
    folder: Folder, slow: SlowDisk
) -> None:
    hasty = Asked(folder, within_s=0.05)
    await begun(slow)
    assert isinstance(await hasty.outcome(), OutcomeUnknown)
    slow.may_end.set()
    await folder.writer.idle()
    assert (hasty.log, folder.disk.get(ROW)) == (["decided", "told", "applied"], b"1")


async def test_while_the_store_tidies_up_what_was_decided_waits_and_what_comes_is_decided_on_top(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidied: list[bool] = []
    sizes: list[int] = []

    def write(changes: dict[bytes, bytes | None]) -> None:
        sizes.append(len(changes))
        if not tidied:
            raise Stalled("Result incomplete: Write stall")
        Disk.write(folder.disk, changes)

    monkeypatch.setattr(folder.disk, "write", write)
    first = Asked(folder)
    hasty = Asked(folder, THIRD, within_s=0.03)
    await until(lambda: bool(sizes))
    seen: list[bytes | None] = []
    second = Asked(folder, decide=lambda transaction: seen.append(transaction.get(ROW)))
    assert isinstance(await hasty.outcome(), OutcomeUnknown)
    assert (first.log, seen) == (["decided"], [b"1"])
    tidied.append(True)
    assert (await first.outcome(), await second.outcome()) == (None, None)
    assert (first.log, folder.disk.get(THIRD)) == (["decided", "applied", "told"], b"1")


# --- when the disk is broken ------------------------------------------------------------------------------------------


async def test_after_a_failed_sync_what_was_decided_is_done_again_and_what_was_not_never_is(
    folder: Folder, slow: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = threading.Event()

    def failing() -> None:
        slow.begun.set()
        assert slow.may_end.wait(SOON_S)
        raise DiskError("IO error: no space left on device")

    def reopen() -> None:
        if not room.is_set():
            raise DiskError("still no space")
        monkeypatch.setattr(folder.disk, "sync", lambda: Disk.sync(folder.disk))
        Disk.reopen(folder.disk)

    monkeypatch.setattr(limits, "REOPEN_RETRY_S", 0.01)
    monkeypatch.setattr(folder.disk, "sync", failing)
    monkeypatch.setattr(folder.disk, "reopen", reopen)
    again: list[Asked] = []
    decided = Asked(folder, then=lambda: again.append(Asked(folder, THIRD)))
    await begun(slow)
    undecided = Asked(folder, OTHER)
    slow.may_end.set()
    for each in (decided, undecided):
        error = await each.outcome()
        assert isinstance(error, OutcomeUnknown)
        assert "no space" in error.message
    assert type(await again[0].outcome()) is ServiceUnavailable, "it was told so, and not from within"
    mended: list[int] = []
    folder.writer.mended.append(lambda: mended.append(1))
    room.set()
    await until(lambda: bool(mended))
    assert [folder.disk.get(row) for row in (ROW, OTHER, THIRD)] == [b"1", None, None]
    assert (decided.log, undecided.log, again[0].log) == (["decided", "told"], ["told"], ["told"])
    assert await Asked(folder, THIRD).outcome() is None


# --- bugs, in callbacks and below ------------------------------------------------------------------------------------


@pytest.fixture
async def caught() -> AsyncIterator[list[object]]:
    """What the loop's handler gets."""
    loop, found = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: found.append(context["exception"]))
    yield found
    loop.set_exception_handler(None)


async def test_a_callback_that_raises_leaves_the_others_of_its_group_their_answers(
    folder: Folder, caught: list[object]
) -> None:
    bug = RuntimeError("a bug of one who asked")

    def raising(*_: object) -> None:
        raise bug

    deadline = asyncio.get_running_loop().time() + SOON_S
    folder.writer.enlist(
        "first", lambda transaction: transaction.put(ROW, b"1"), raising, deadline=deadline, applied=raising
    )
    second = Asked(folder, OTHER)
    assert await second.outcome() is None
    assert await Asked(folder, THIRD).outcome() is None, "the next group begins"
    assert caught == [bug, bug]


async def test_a_callback_that_raises_when_the_disk_fails_leaves_the_others_their_answers(
    folder: Folder, caught: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug = RuntimeError("a bug of one who asked")

    def raising(*_: object) -> None:
        raise bug

    def failing(changes: Changes) -> None:
        monkeypatch.undo()
        raise DiskError("IO error")

    monkeypatch.setattr(folder.disk, "write", failing)
    deadline = asyncio.get_running_loop().time() + SOON_S
    folder.writer.enlist("first", lambda transaction: transaction.put(ROW, b"1"), raising, deadline=deadline)
    assert isinstance(await Asked(folder, OTHER).outcome(), OutcomeUnknown)
    await working_again(folder)
    assert caught == [bug]


@pytest.mark.parametrize("where", ["write", "sync", "reopen", "listener"])
async def test_an_error_of_any_kind_is_mended_without_a_restart(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Of kinds that we never thought of, too: the folder is opened again until it works."""
    monkeypatch.setattr(limits, "REOPEN_RETRY_S", 0.01)
    failures: list[str] = []

    def once(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def failing(*args: object) -> object:
            if name not in failures:
                failures.append(name)
                raise MemoryError("no store says this") if name == where else DiskError("IO error")
            return real(*args)

        return failing

    first = "sync" if where == "sync" else "write"
    monkeypatch.setattr(folder.disk, first, once(first, getattr(folder.disk, first)))
    if where == "reopen":
        monkeypatch.setattr(folder.disk, "reopen", once("reopen", folder.disk.reopen))
    if where == "listener":
        listener = once("listener", lambda: None)
        folder.writer.mended.append(lambda: (listener(), None)[1])
    heard: list[str] = []
    folder.writer.mended.append(lambda: heard.append("mended"))
    assert isinstance(await Asked(folder, within_s=60).outcome(), OutcomeUnknown), "at once, and not at its deadline"
    await working_again(folder)
    assert where in failures
    assert heard == ["mended"], "once the folder works, all that rests on it hears of it"
    assert folder.disk.get(ROW) == b"1", "what was decided is done again"


async def working_again(folder: Folder) -> None:
    async def works() -> bool:
        try:
            await put(folder, b"2", row=THIRD)
        except ServiceUnavailable:
            return False
        return True

    for _ in range(1000):
        if await works():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the folder stays broken")
