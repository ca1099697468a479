"""Transactions that begin when their group begins: when they begin and are done, and what bad disks do to them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, SeriatimError, ServiceUnavailable, Throttled
from seriatim.engines.embedded.storage.disk import Changes, Disk, DiskError, Stalled
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.snapshot import WriteTransaction
from tests.unit.engines.slow_disk import OTHER, ROW, SOON_S, THIRD, SlowDisk, begun, put, until


@pytest.fixture
async def caught() -> AsyncIterator[list[object]]:
    """What the loop's handler gets."""
    loop, found = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: found.append(context["exception"]))
    yield found
    loop.set_exception_handler(None)


class Request:
    """One transaction: with which errors it was done, and when it was begun and applied."""

    def __init__(
        self,
        folder: Folder,
        row: bytes = ROW,
        value: bytes = b"1",
        *,
        within_s: float = SOON_S,
        work: Callable[[WriteTransaction], None] | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        self.log: list[str] = []
        self.errors: list[SeriatimError | None] = []
        self._work = work or (lambda transaction: transaction.put(row, value))
        self._then = then
        deadline = asyncio.get_running_loop().time() + within_s
        self._writer, self._deadline = folder.writer, deadline
        folder.writer.when_ready("send", self._begin, deadline=deadline)
        assert self.log == [], "called back from within"

    def _begin(self, opened: WriteTransaction | SeriatimError) -> None:
        if isinstance(opened, SeriatimError):
            self._done(opened)
            return
        self.log.append("begun")
        self._work(opened)
        self._writer.submit("send", opened, self._done, deadline=self._deadline, applied=self._applied)

    def _applied(self) -> None:
        self.log.append("applied")

    def _done(self, error: SeriatimError | None) -> None:
        self.log.append("done")
        self.errors.append(error)
        if self._then is not None:
            self._then()

    async def outcome(self) -> SeriatimError | None:
        await until(lambda: bool(self.errors))
        return self.errors[0]


# --- when the disk is well --------------------------------------------------------------------------------------------


async def test_a_request_is_decided_when_its_group_begins_and_called_back_when_it_is_synced(
    folder: Folder, slow: SlowDisk
) -> None:
    first = asyncio.ensure_future(put(folder, b"0", row=THIRD))
    await begun(slow)
    asked = [Request(folder), Request(folder, OTHER)]
    await asyncio.sleep(0.02)
    assert [each.log for each in asked] == [[], []], "the first sync is still under way"
    slow.begun.clear()
    slow.may_end.set()
    await first
    for each in asked:
        assert await each.outcome() is None
        assert each.log == ["begun", "applied", "done"]
    assert slow.syncs == 2


async def test_no_callback_runs_before_its_sync_has_ended(folder: Folder, slow: SlowDisk) -> None:
    asked = Request(folder)
    await begun(slow)
    await asyncio.sleep(0.02)
    assert asked.log == ["begun"]
    slow.may_end.set()
    assert await asked.outcome() is None


async def test_a_transaction_sees_those_of_its_group_and_one_that_raises_leaves_nothing(
    folder: Folder, caught: list[object]
) -> None:
    seen: list[bytes | None] = []
    bug = RuntimeError("a bug")

    def fail(transaction: WriteTransaction) -> None:
        transaction.delete(ROW)
        raise bug

    written = asyncio.ensure_future(put(folder, b"asked for before", row=OTHER))
    await asyncio.sleep(0)
    first, failed = Request(folder), Request(folder, work=fail)
    last = Request(folder, work=lambda transaction: seen.extend((transaction.get(ROW), transaction.get(OTHER))))
    assert (await first.outcome(), await last.outcome()) == (None, None)
    await written
    assert (failed.log, caught) == (["begun"], [bug])
    assert (seen, folder.disk.get(ROW)) == ([b"1", b"asked for before"], b"1")


async def test_a_callback_may_ask_again_and_no_request_made_meanwhile_is_forgotten(
    folder: Folder, slow: SlowDisk
) -> None:
    again: list[Request] = []
    first = Request(folder, then=lambda: again.append(Request(folder, OTHER)))
    await begun(slow)
    meanwhile = asyncio.ensure_future(put(folder, b"3", row=THIRD))
    await asyncio.sleep(0)
    slow.may_end.set()
    assert await first.outcome() is None
    await meanwhile
    assert await again[0].outcome() is None
    assert slow.syncs == 2, "they went together"


async def test_a_request_may_make_another_one_while_it_is_decided(folder: Folder) -> None:
    again: list[Request] = []
    first = Request(folder, work=lambda transaction: again.append(Request(folder, OTHER)))
    assert await first.outcome() is None
    assert await again[0].outcome() is None
    assert folder.disk.get(OTHER) == b"1"


async def test_requests_beyond_the_most_that_may_wait_are_throttled(
    folder: Folder, slow: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITES_WAITING_MAX", 2)
    first = asyncio.ensure_future(put(folder, b""))
    await begun(slow)
    asked = [Request(folder, b"C%d" % number) for number in range(3)]
    assert isinstance(await asked[2].outcome(), Throttled)
    slow.may_end.set()
    assert [await each.outcome() for each in asked[:2]] == [None, None]
    assert asked[2].log == ["done"]
    await first


async def test_a_folder_that_closes_answers_what_was_enlisted_and_refuses_the_rest(
    folder: Folder, slow: SlowDisk
) -> None:
    first = asyncio.ensure_future(put(folder, b"0", row=THIRD))
    await begun(slow)
    asked = Request(folder)
    closing = asyncio.ensure_future(folder.close())
    await asyncio.sleep(0)
    refused = Request(folder, OTHER)
    await asyncio.sleep(0.02)
    assert not closing.done()
    slow.may_end.set()
    await asyncio.gather(first, closing)
    assert asked.errors == [None]
    assert [type(each) for each in refused.errors] == [ServiceUnavailable]


# --- when the disk is slow --------------------------------------------------------------------------------------------


async def test_a_request_whose_time_is_up_before_the_decision_is_never_decided(folder: Folder, slow: SlowDisk) -> None:
    first = asyncio.ensure_future(put(folder, b"0", row=THIRD))
    await begun(slow)
    hasty, gone, patient = Request(folder, within_s=0.02), Request(folder, within_s=-1.0), Request(folder, OTHER)
    assert isinstance(await hasty.outcome(), OutcomeUnknown)
    assert isinstance(await gone.outcome(), OutcomeUnknown)
    slow.may_end.set()
    assert await patient.outcome() is None
    await first
    assert (hasty.log, gone.log, folder.disk.get(ROW)) == (["done"], ["done"], None)


async def test_a_request_whose_time_is_up_after_the_decision_is_unknown_and_applied_all_the_same(
    folder: Folder, slow: SlowDisk
) -> None:
    hasty = Request(folder, within_s=0.05)
    await begun(slow)
    assert isinstance(await hasty.outcome(), OutcomeUnknown)
    slow.may_end.set()
    await folder.writer.idle()
    assert (hasty.log, folder.disk.get(ROW)) == (["begun", "done", "applied"], b"1")


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
    first = Request(folder)
    hasty = Request(folder, THIRD, within_s=0.03)
    await until(lambda: bool(sizes))
    seen: list[bytes | None] = []
    second = Request(folder, work=lambda transaction: seen.append(transaction.get(ROW)))
    assert isinstance(await hasty.outcome(), OutcomeUnknown)
    assert (first.log, seen) == (["begun"], [b"1"])
    tidied.append(True)
    assert (await first.outcome(), await second.outcome()) == (None, None)
    assert (first.log, folder.disk.get(THIRD)) == (["begun", "applied", "done"], b"1")


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
    again: list[Request] = []
    decided = Request(folder, then=lambda: again.append(Request(folder, THIRD)))
    await begun(slow)
    undecided = Request(folder, OTHER)
    slow.may_end.set()
    for each in (decided, undecided):
        error = await each.outcome()
        assert isinstance(error, OutcomeUnknown)
        assert "no space" in error.log_reason
    assert type(await again[0].outcome()) is ServiceUnavailable, "it was called back, and not from within"
    mended: list[int] = []
    folder.writer.mended.append(lambda: mended.append(1))
    room.set()
    await until(lambda: bool(mended))
    assert [folder.disk.get(row) for row in (ROW, OTHER, THIRD)] == [b"1", None, None]
    assert (decided.log, undecided.log, again[0].log) == (["begun", "done"], ["done"], ["done"])
    assert await Request(folder, THIRD).outcome() is None


# --- bugs, in callbacks and below ------------------------------------------------------------------------------------


async def test_a_callback_that_raises_leaves_the_others_of_its_group_their_answers(
    folder: Folder, caught: list[object]
) -> None:
    bug = RuntimeError("a bug of one who asked")

    def raising(*_: object) -> None:
        raise bug

    deadline = asyncio.get_running_loop().time() + SOON_S

    def begin(opened: WriteTransaction | SeriatimError) -> None:
        assert not isinstance(opened, SeriatimError)
        opened.put(ROW, b"1")
        folder.writer.submit("first", opened, raising, deadline=deadline, applied=raising)

    folder.writer.when_ready("first", begin, deadline=deadline)
    second = Request(folder, OTHER)
    assert await second.outcome() is None
    assert await Request(folder, THIRD).outcome() is None, "the next group begins"
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

    def begin(opened: WriteTransaction | SeriatimError) -> None:
        assert not isinstance(opened, SeriatimError)
        opened.put(ROW, b"1")
        folder.writer.submit("first", opened, raising, deadline=deadline, applied=lambda: None)

    folder.writer.when_ready("first", begin, deadline=deadline)
    assert isinstance(await Request(folder, OTHER).outcome(), OutcomeUnknown)
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
    assert isinstance(await Request(folder, within_s=60).outcome(), OutcomeUnknown), "at once, and not at its deadline"
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
