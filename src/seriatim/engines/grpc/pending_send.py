"""A draft that was submitted to the router and has no answer yet: answered once, by its deadline at the latest."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from seriatim.domain.errors import OutcomeUnknown, SeriatimError, ServiceUnavailable
from seriatim.domain.message import Draft, Receipt
from seriatim.ports.durability import Answer


class DraftSink(Protocol):
    """What the router needs of a stream to one ingest process."""

    def put(self, send: "PendingSend") -> None:
        """Sets `send.stream` and sends the draft after all drafts that were put before it."""
        ...

    def deadline_missed(self) -> None:
        """A draft on this stream has no answer, and its deadline is over."""
        ...


class PendingSend:
    """`settled` is called once, just before the answer. `stream` has the draft, so it may be stored by now."""

    __slots__ = ("_answer", "_settled", "_timer", "deadline", "draft", "stream")

    def __init__(self, draft: Draft, deadline: float, answer: Answer, settled: Callable[["PendingSend"], None]) -> None:
        self.draft = draft
        self.deadline = deadline
        self.stream: DraftSink | None = None
        self._answer: Answer | None = answer
        self._settled = settled
        self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)

    @property
    def answered(self) -> bool:
        return self._answer is None

    def finish(self, outcome: Receipt | SeriatimError) -> None:
        """The first call counts: by an answer, the deadline, or the end of the stream."""
        if self._answer is None:
            return
        answer, self._answer = self._answer, None
        self._timer.cancel()
        self._settled(self)
        answer(outcome)

    def _expire(self) -> None:
        if self.stream is None:
            self.finish(ServiceUnavailable("the durability plane cannot be reached; retry with the same id"))
        else:
            self.stream.deadline_missed()
            self.finish(OutcomeUnknown("the durability plane did not answer in time; retry with the same id"))
