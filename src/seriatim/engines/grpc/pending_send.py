"""A draft on its way to an ingest process: answered once, at the latest at its deadline."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from seriatim.domain.errors import OutcomeUnknown, SeriatimError, ServiceUnavailable
from seriatim.domain.message import Draft, Receipt
from seriatim.ports.durability import Answer


class Carrier(Protocol):
    """The line that a draft was put on."""

    def late(self) -> None:
        """A draft has no answer, and its deadline is over."""
        ...


class Sending:
    """`settled` is called once, just before the answer. `line`: it has the draft, which may be stored by now."""

    __slots__ = ("_answer", "_settled", "_timer", "deadline", "draft", "line")

    def __init__(self, draft: Draft, deadline: float, answer: Answer, settled: Callable[["Sending"], None]) -> None:
        self.draft = draft
        self.deadline = deadline
        self.line: Carrier | None = None
        self._answer: Answer | None = answer
        self._settled = settled
        self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)

    @property
    def answered(self) -> bool:
        return self._answer is None

    def finish(self, outcome: Receipt | SeriatimError) -> None:
        """Whoever comes first is heard: an answer, the deadline, or the end of the line."""
        if self._answer is None:
            return
        answer, self._answer = self._answer, None
        self._timer.cancel()
        self._settled(self)
        answer(outcome)

    def _expire(self) -> None:
        if self.line is None:
            self.finish(ServiceUnavailable("the durability plane cannot be reached; retry with the same id"))
        else:
            self.line.late()
            self.finish(OutcomeUnknown("the durability plane did not answer in time; retry with the same id"))
