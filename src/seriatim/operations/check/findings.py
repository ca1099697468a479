"""What a check has looked at and found. It keeps numbers, and of the violations a few: a broken store must fit, too."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from seriatim.domain import limits
from seriatim.operations.check.invariants import INVARIANTS

Suspects = Mapping[tuple[str, str], None]
Look = Callable[[], Awaitable[str | None]]  # reads anew all that it rests on, and says what is wrong


class StoredViolation(msgspec.Struct, frozen=True, kw_only=True):
    """`subject`: the chat, sequence, user or record it concerns."""

    invariant: str
    subject: str
    what: str
    advice: str


class InvariantResult(msgspec.Struct, frozen=True, kw_only=True):
    """One invariant: at how many things of its kind the check looked, and how many of them break it.

    `not_looked_at`: why not at any.
    """

    invariant: str
    name: str
    source: str
    statement: str
    looked_at: int
    violations: int
    not_looked_at: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`withdrawn`: what looked wrong at first and was right at the second look, as writes in flight do."""

    rows: int
    lines: tuple[InvariantResult, ...]
    violations: int
    shown: tuple[StoredViolation, ...]
    withdrawn: int


class Findings:
    """Of one pass. With `suspects`, the finds of an earlier pass, only what was found then counts."""

    def __init__(
        self, progress: Callable[[int], None], suspects: "Findings | None" = None, *, pause_s: float = 0.0
    ) -> None:
        self.rows = 0
        self.suspects: dict[tuple[str, str], None] = {}
        self.total = 0
        self._progress = progress
        self._before = suspects
        self._pause_s = pause_s
        self._looks_again = 0
        self._unseen: dict[str, str] = {}
        self._looked: dict[str, int] = {each.id: 0 for each in INVARIANTS.values() if not each.shown_by}
        self._counts: dict[str, int] = dict.fromkeys(self._looked, 0)
        self._shown: dict[str, list[StoredViolation]] = {id: [] for id in self._looked}

    def row(self) -> None:
        """One more row was read."""
        self.rows += 1
        if self.rows % limits.CHECK_PROGRESS_ROWS == 0:
            self._progress(self.rows)

    def looked(self, *invariants: str) -> None:
        for each in invariants:
            self._looked[each] += 1

    def could_not_look(self, reason: str, *invariants: str) -> None:
        self._unseen.update(dict.fromkeys(invariants, reason))

    async def judge(self, invariant: str, subject: str, look: Look) -> None:
        """For what may change between two reads: it is violated if it looks wrong however often one looks.

        The first pass looks once, since the second looks again at whatever it finds.
        """
        wrong = await look()
        if self._before is not None and not self._before.suspected(invariant, subject):
            return
        for _ in range(limits.CHECK_LOOKS_MAX - 1 if self._before is not None else 0):
            if wrong is None or self._looks_again == limits.CHECK_LOOKS_AGAIN_MAX:
                break
            self._looks_again += 1
            await asyncio.sleep(self._pause_s)
            wrong = await look()
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
        """Of too many to be remembered, each may have been among them: so many are no writes in flight."""
        return self.total > len(self.suspects) or (invariant, subject) in self.suspects

    def report(self) -> Report:
        lines = [
            InvariantResult(
                invariant=id,
                name=INVARIANTS[id].name,
                source=INVARIANTS[id].source,
                statement=INVARIANTS[id].statement,
                looked_at=looked_at,
                violations=self._counts[id],
                not_looked_at=self._unseen.get(id, ""),
            )
            for id, looked_at in self._looked.items()
        ]
        return Report(
            rows=self.rows,
            lines=tuple(lines),
            violations=self.total,
            shown=tuple([each for id in self._shown for each in self._shown[id]]),
            withdrawn=max(0, self._before.total - self.total) if self._before is not None else 0,
        )
