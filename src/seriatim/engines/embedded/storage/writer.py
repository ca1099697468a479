"""Group commit: all requests that come while one sync is under way are written and synced together, next.

A request is decided at once, on the event loop, against everything decided before it. Its answer, a refusal too,
waits until all that the decision rests on is synced; so does a read that met rows on their way to the disk.
Only `commit_early` answers before: to a caller in this process that answers no client before a later commit or read.
A thread does the waiting for the disk and nothing else.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic, TypeVar

from seriatim.domain import limits
from seriatim.domain.errors import (
    STORE_FAILING,
    STORE_SLOW,
    OutcomeUnknown,
    SeriatimError,
    ServiceUnavailable,
    Throttled,
)
from seriatim.engines.embedded.storage.commit_group import Done, Group, Waiter, resolves
from seriatim.engines.embedded.storage.disk import Changes, Disk, Stalled
from seriatim.engines.embedded.storage.snapshot import ReadSnapshot, WriteTransaction

T = TypeVar("T")


class Writer:
    """The only way to change a row, and the way to read rows that survive the loss of power."""

    def __init__(self, disk: Disk) -> None:
        self.mended: list[Callable[[], None]] = []  # called after the folder was opened again
        self._disk = disk
        self._gathering = Group()
        self._syncing: Group | None = None
        self._begins = False
        self._broken: str | None = None
        self._closed = False
        self._idle: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._stop = threading.Event()
        self._jobs: SimpleQueue[tuple[asyncio.AbstractEventLoop, _Job] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="seriatim-sync", daemon=True)
        self._thread.start()

    async def commit(
        self,
        operation: str,
        decide: Callable[[WriteTransaction], T],
        *,
        timeout_s: float,
        applied: Callable[[], None] | None = None,
    ) -> T:
        """What `decide` returns or raises, once its changes and all that it saw survive the loss of power.

        `applied` is called at that moment, whether or not anyone still waits. Too many waiting: `Throttled`.
        """
        transaction, decision = self._decide(operation, decide, timeout_s)
        return await self._settled(operation, transaction, decision, applied, timeout_s)

    async def commit_early(self, operation: str, decide: Callable[[WriteTransaction], T], *, timeout_s: float) -> T:
        """What `decide` returns, at once, if it changed something; else as `commit`.

        The changes stand as long as this process does, even if the disk fails meanwhile. Once it is gone, whatever
        was written later is there only if they are: so no client may see them before a later `commit` or `read`.
        """
        transaction, decision = self._decide(operation, decide, timeout_s)
        if decision.refusal is not None or not transaction.changes:
            return await self._settled(operation, transaction, decision, None, timeout_s)
        self._gathering.changes.update(transaction.changes)
        self._gathering.early.update(transaction.changes)
        self._begin_soon(asyncio.get_running_loop())
        return decision.result

    def when_ready(
        self, operation: str, begin: Callable[[WriteTransaction | SeriatimError], None], *, deadline: float
    ) -> None:
        """Calls `begin` with a transaction when the next group begins, or with an error: none begins by `deadline`.

        So all that comes while a sync is under way can be in one transaction. `begin` passes it to `submit`, or drops
        it: then nothing was changed.
        """
        loop = asyncio.get_running_loop()
        try:
            self._check_open(operation, deadline - loop.time())
        except SeriatimError as refusal:
            loop.call_soon(begin, refusal)
            return
        self._gathering.starting.append(Waiter(begin, operation, deadline))
        self._begin_soon(loop)
        self._watch(loop, deadline)

    def submit(
        self, operation: str, transaction: WriteTransaction, done: Done, *, deadline: float, applied: Callable[[], None]
    ) -> None:
        """Commits a transaction from within its `begin`; both have one deadline. Calls `done` as `commit` returns."""
        group = self._gathering
        group.changes.update(transaction.changes)
        group.waiting.append(Waiter(done, operation, deadline, applied))

    def write_lazily(self, changes: Changes) -> None:
        """As `commit_early`, for rows without a waiting caller: written with the next group, or after LAZY_WRITE_S."""
        self._check_working()
        self._gathering.changes.update(changes)
        self._gathering.early.update(changes)
        if self._later is None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(limits.LAZY_WRITE_S, self._put_now, loop)

    async def read(self, operation: str, read: Callable[[ReadSnapshot], T], *, timeout_s: float) -> T:
        """What `read` finds: all that was answered before this call, and nothing that a loss of power could undo."""
        if timeout_s <= 0:
            raise OutcomeUnknown(STORE_SLOW, log_reason=f"{operation}: no time left")
        await asyncio.sleep(0)  # a caller may read page after page: others must run, too
        self._check_working()
        deadline = asyncio.get_running_loop().time() + timeout_s
        snapshot = ReadSnapshot(self._disk, self._syncing or _NOTHING, self._gathering)
        found = read(snapshot)
        if snapshot.outdated:
            # What was answered before this call is on the disk once this group is. What comes later need not be seen.
            await self._wait(self._gathering, operation, None, deadline)
            self._check_working()
            snapshot = ReadSnapshot(self._disk, self._syncing or _NOTHING, _NOTHING)
            found = read(snapshot)
        if snapshot.unsynced and self._syncing is not None:
            await self._wait(self._syncing, operation, None, deadline)
        return found

    async def idle(self) -> None:
        """Returns when nothing is waiting for the disk."""
        self._put_now(asyncio.get_running_loop())
        while self._syncing is not None or self._gathering.requests:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    async def close(self) -> None:
        """Earlier requests are answered; later ones are refused."""
        self._closed = True
        await self.idle()
        if self._alarm is not None:
            self._alarm.cancel()
        self._stop.set()
        self._jobs.put(None)
        self._thread.join()

    # --- on the event loop --------------------------------------------------------------------------------------------

    def _decide(
        self, operation: str, decide: Callable[[WriteTransaction], T], timeout_s: float
    ) -> "tuple[WriteTransaction, _Decision[T]]":
        self._check_open(operation, timeout_s)
        transaction = WriteTransaction(self._disk, self._gathering.changes)
        return transaction, _Decision(decide, transaction)

    def _check_open(self, operation: str, timeout_s: float) -> None:
        if timeout_s <= 0:
            raise OutcomeUnknown(STORE_SLOW, log_reason=f"{operation}: no time left")
        self._check_working()
        if self._gathering.requests >= limits.WRITES_WAITING_MAX:
            raise Throttled("the disk is slower than the requests; retry after a pause")

    async def _settled(
        self,
        operation: str,
        transaction: WriteTransaction,
        decision: "_Decision[T]",
        applied: Callable[[], None] | None,
        timeout_s: float,
    ) -> T:
        if not transaction.changes and not self._gathering.changes and self._syncing is None:
            await asyncio.sleep(0)  # nothing to wait for; but who asks in a loop must let others run
        else:
            loop = asyncio.get_running_loop()
            self._gathering.changes.update(transaction.changes)
            self._begin_soon(loop)
            only_if_done = applied if decision.refusal is None else None
            await self._wait(self._gathering, operation, only_if_done, loop.time() + timeout_s)
        return decision.outcome()

    def _begin_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        self._gathering.requests += 1
        if self._syncing is None and not self._begins:
            # At the end of this turn, so that all who ask in the same turn share the first sync.
            self._begins = True
            loop.call_soon(self._begin, loop)

    def _put_now(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._gathering.changes and not self._gathering.requests:
            self._begin_soon(loop)

    async def _wait(self, group: Group, operation: str, applied: Callable[[], None] | None, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        group.waiting.append(Waiter(resolves(future), operation, deadline, applied))
        self._watch(loop, deadline)
        await future

    def _watch(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        """One alarm for all who wait: it goes off at the earliest deadline, and a healthy disk is always faster."""
        if self._alarm is not None:
            if self._alarm.when() <= deadline and not self._alarm.cancelled():
                return
            self._alarm.cancel()
        self._alarm = loop.call_at(deadline, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = None
        now = loop.time()
        for group in (self._syncing or _NOTHING, self._gathering):
            group.expire(now)
        left = [
            each.deadline for group in (self._syncing or _NOTHING, self._gathering) for each in group.still_waiting()
        ]
        if left:
            self._watch(loop, min(left))

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begins = True  # who asks while others decide belongs to this group
        group = self._gathering
        group.start(lambda: WriteTransaction(self._disk, group.changes))
        self._begins = False
        try:
            if group.changes:
                self._disk.write(group.changes)
        except Stalled:
            self._begins = True
            loop.call_later(limits.STALL_RETRY_S, self._begin, loop)
            return
        except Exception as error:  # whatever it is: who waits is answered, and the folder is mended
            self._break(loop, error)
            return
        self._gathering = Group()
        self._syncing = group
        group.deleted = (
            [] if None not in group.changes.values() else [key for key, value in group.changes.items() if value is None]
        )
        if group.changes:
            self._jobs.put((loop, _Job(self._disk.sync, self._synced)))
        else:
            self._synced(loop, None)

    def _synced(self, loop: asyncio.AbstractEventLoop, error: Exception | None) -> None:
        if error is not None:
            self._break(loop, error)
            return
        group, self._syncing = self._syncing, None
        if group is not None:
            group.answer()
        if self._begins:
            return  # a callback made a request, and the next group begins at the end of this turn
        if self._gathering.requests:
            self._begin(loop)
        else:
            self._settle()

    def _break(self, loop: asyncio.AbstractEventLoop, error: Exception) -> None:
        """No waiting caller can know the outcome. What `commit_early` answered must hold, so all is written again."""
        self._broken = str(error)
        groups = (self._syncing or _NOTHING, self._gathering)
        self._syncing, self._gathering = None, Group()
        for group in groups:
            group.fail(f"the write to the data folder failed: {error}")
        self._settle()
        self._begin_mending(loop, {**groups[0].changes, **groups[1].changes})

    def _begin_mending(self, loop: asyncio.AbstractEventLoop, undone: Changes) -> None:
        def mended(loop: asyncio.AbstractEventLoop, error: Exception | None) -> None:
            if error is not None:
                return  # the folder is being closed
            try:
                for listener in self.mended:
                    listener()
            except Exception as failure:  # what rests on the folder does not know it yet: once more
                self._broken = str(failure)
                loop.call_later(limits.REOPEN_RETRY_S, self._begin_mending, loop, undone)
            else:
                self._broken = None

        self._jobs.put((loop, _Job(lambda: self._mend(undone), mended)))

    def _check_working(self) -> None:
        if self._closed:
            raise ServiceUnavailable(STORE_FAILING, log_reason="the data folder is closed")
        if self._broken is not None:
            raise ServiceUnavailable(
                STORE_FAILING,
                log_reason=f"the data folder cannot be written ({self._broken}); it is tried again every second, and "
                "works again once the disk has room and can be written",
            )

    def _settle(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    # --- on the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (order := self._jobs.get()) is not None:
            loop, job = order
            error: Exception | None = None
            try:
                job.run()
            except Exception as failure:
                error = failure
            with suppress(RuntimeError):  # the loop is closed: there is no caller left
                loop.call_soon_threadsafe(job.then, loop, error)

    def _mend(self, undone: Changes) -> None:
        """Whichever of these changes the log kept: after it they are all there, in the order of their decisions."""
        while True:
            try:
                self._disk.reopen()
                self._disk.write(undone)
                self._disk.sync()
                return
            except Exception:  # of any kind: who gives up here leaves the folder broken until a restart
                if self._stop.wait(limits.REOPEN_RETRY_S):
                    raise


Then = Callable[[asyncio.AbstractEventLoop, Exception | None], None]


class _Job:
    __slots__ = ("run", "then")

    def __init__(self, run: Callable[[], None], then: Then) -> None:
        self.run = run
        self.then = then


class _Decision(Generic[T]):
    """The outcome of a request: a result or a refusal."""

    __slots__ = ("refusal", "result")

    def __init__(self, decide: Callable[[WriteTransaction], T], transaction: WriteTransaction) -> None:
        self.refusal: Exception | None = None
        self.result: T
        try:
            self.result = decide(transaction)
        except Exception as refusal:
            self.refusal = refusal
            transaction.changes.clear()

    def outcome(self) -> T:
        if self.refusal is not None:
            raise self.refusal
        return self.result


_NOTHING = Group()
