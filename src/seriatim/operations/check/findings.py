"""What a check has examined and found: numbers, and a few violations, so that it fits into memory."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from seriatim.domain import limits
from seriatim.operations.check.invariants import INVARIANTS

Suspects = Mapping[tuple[str, str], None]
Confirmation = Callable[[], Awaitable[str | None]]  # reads all its rows again, and returns what is wrong


class StoredViolation(msgspec.Struct, frozen=True, kw_only=True):
    """`subject`: the chat, sequence, user or record it concerns."""

    invariant: str
    subject: str
    what: str
    advice: str


class InvariantResult(msgspec.Struct, frozen=True, kw_only=True):
    """One invariant: how many subjects the check examined, and how many of them break it.

    `not_looked_at`: why none was examined.
    """

    invariant: str
    name: str
    source: str
    statement: str
    looked_at: int
    violations: int
    not_looked_at: str = ""


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """`withdrawn`: violations of the first pass that the second did not find, as of writes in flight."""

    rows: int
    lines: tuple[InvariantResult, ...]
    violations: int
    shown: tuple[StoredViolation, ...]
    withdrawn: int


class Findings:
    """Of one pass. With `suspects`, the findings of an earlier pass, only what was found then counts."""

    def __init__(
        self, progress: Callable[[int], None], suspects: "Findings | None" = None, *, pause_s: float = 0.0
    ) -> None:
        self.rows = 0
        self.suspects: dict[tuple[str, str], None] = {}
        self.total = 0
        self._progress = progress
        self._before = suspects
        self._pause_s = pause_s
        self._rechecks = 0
        self._skipped: dict[str, str] = {}
        self._examined: dict[str, int] = {each.id: 0 for each in INVARIANTS.values() if not each.shown_by}
        self._counts: dict[str, int] = dict.fromkeys(self._examined, 0)
        self._shown: dict[str, list[StoredViolation]] = {id: [] for id in self._examined}

    def row(self) -> None:
        """One more row was read."""
        self.rows += 1
        if self.rows % limits.CHECK_PROGRESS_ROWS == 0:
            self._progress(self.rows)

    def examined(self, *invariants: str) -> None:
        for each in invariants:
            self._examined[each] += 1

    def skip(self, reason: str, *invariants: str) -> None:
        self._skipped.update(dict.fromkeys(invariants, reason))

    async def confirm(self, invariant: str, subject: str, recheck: Confirmation) -> None:
        """For rows that may change between two reads: violated only if every recheck says so.

        The first pass checks once, since the second pass checks again whatever it finds.
        """
        wrong = await recheck()
        if self._before is not None and not self._before.suspected(invariant, subject):
            return
        for _ in range(limits.CHECK_READS_MAX - 1 if self._before is not None else 0):
            if wrong is None or self._rechecks == limits.CHECK_REREADS_MAX:
                break
            self._rechecks += 1
            await asyncio.sleep(self._pause_s)
            wrong = await recheck()
        if wrong is not None:
            self.violated(invariant, subject, wrong)

    def violated(self, invariant: str, subject: str, what: str) -> None:
        if self._before is not None and not self._before.suspected(invariant, subject):
            return
        self.total += 1
        self._counts[invariant] += 1
        if len(self.suspects) < limits.CHECK_SUSPECTS_MAX:
            self.suspects[invariant, subject] = None
        shown = self._shown[invariant]
        if len(shown) < limits.CHECK_VIOLATIONS_SHOWN_MAX:
            advice = INVARIANTS[invariant].advice
            shown.append(StoredViolation(invariant=invariant, subject=subject, what=what, advice=advice))

    def suspected(self, invariant: str, subject: str) -> bool:
        """If the suspects were too many to be kept, any subject counts as one: so many are no writes in flight."""
        return self.total > len(self.suspects) or (invariant, subject) in self.suspects

    def report(self) -> CheckReport:
        lines = [
            InvariantResult(
                invariant=id,
                name=INVARIANTS[id].name,
                source=INVARIANTS[id].source,
                statement=INVARIANTS[id].statement,
                looked_at=looked_at,
                violations=self._counts[id],
                not_looked_at=self._skipped.get(id, ""),
            )
            for id, looked_at in self._examined.items()
        ]
        return CheckReport(
            rows=self.rows,
            lines=tuple(lines),
            violations=self.total,
            shown=tuple([each for id in self._shown for each in self._shown[id]]),
            withdrawn=max(0, self._before.total - self.total) if self._before is not None else 0,
        )
