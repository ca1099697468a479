"""The frames that wait for one socket: answers first, then batches, then at most OUTBOUND_FRAMES_MAX pushes.

Nothing is dropped in silence: `push` refuses a push that finds no room, and its caller reads the message back later;
`sync_hints` names the messages that have not left at the close.
"""

from collections import deque
from enum import Enum
from operator import itemgetter

import msgspec

from seriatim.connection.session.chat_cursor import QueuedPush
from seriatim.domain import limits

FEW_FRAMES = 256  # at most so many are measured and written at once

_frame = itemgetter(0)


class Pressure(Enum):
    WARNED = "warned"
    CRITICAL = "critical"  # the client is warned; the grace period begins
    RECOVERED = "recovered"  # below the warning mark again; refused pushes may be read back


class OutboundChunk(msgspec.Struct, frozen=True, gc=False):
    """Frames to write now, and how many of them answer requests or are batches. `last`: nothing else waits."""

    frames: list[bytes]
    answers: int
    batches: int
    last: bool


class OutboundBuffer:
    """`lagging`: the buffer was full and has not drained below the warning mark since; pushes are refused."""

    __slots__ = (
        "_answer_frames",
        "_answers",
        "_batches",
        "_closing",
        "_warned",
        "close_at",
        "lagging",
        "needs_assessment",
        "pushes",
    )

    def __init__(self) -> None:
        self._answer_frames: list[bytes] = []
        self._answers = 0
        self._batches: deque[bytes] = deque()
        self.pushes: deque[QueuedPush] = deque()
        self._warned = False
        self._closing = False
        self.lagging = False
        self.needs_assessment = False  # `assess` may have a change to report
        self.close_at: float | None = None  # the end of the grace period, while one runs

    def push(self, frame: bytes, chat_id: str, floor: int) -> bool:
        """False: no room, nothing was queued."""
        if self.lagging:
            return False
        self.pushes.append((frame, chat_id, floor))
        if len(self.pushes) >= limits.OUTBOUND_WARN_FRAMES:
            self.needs_assessment = True
            self.lagging = len(self.pushes) >= limits.OUTBOUND_FRAMES_MAX
        return True

    def has_room(self, count: int) -> bool:
        """So many more pushes stay below the warning mark: the caller may append them to `pushes` itself."""
        return not self.lagging and len(self.pushes) + count < limits.OUTBOUND_WARN_FRAMES

    def answer(self, frame: bytes, *, request: bool) -> bool:
        """Overtakes pushes. `request`: answers an accepted request. False: no room for another answer."""
        if len(self._answer_frames) >= limits.PRIORITY_FRAMES_MAX:
            return False
        self._answer_frames.append(frame)
        self._answers += request
        return True

    def greet(self, frame: bytes) -> None:
        """Before all other answers."""
        self._answer_frames.insert(0, frame)

    def batch(self, frame: bytes) -> None:
        """Bounded by SYNCS_IN_PROGRESS_MAX. After the answers, for it is large; before the pushes that follow it."""
        self._batches.append(frame)

    def take(self, bytes_max: int) -> OutboundChunk | None:
        """The next frames in order, about `bytes_max` of them; None when nothing waits."""
        frames, answers, batches, pushes = self._answer_frames, self._answers, 0, self.pushes
        if not (frames or pushes or self._batches):
            return None
        self._answer_frames, self._answers = [], 0
        if len(pushes) <= FEW_FRAMES and not self._batches:
            everything = [*frames, *map(_frame, pushes)]
            if sum(map(len, everything)) < bytes_max:
                pushes.clear()
                return OutboundChunk(everything, answers, 0, True)
        size = sum(map(len, frames))
        while self._batches and size < bytes_max:
            frames.append(frame := self._batches.popleft())
            size += len(frame)
            batches += 1
        while pushes and size < bytes_max:
            frames.append(frame := pushes.popleft()[0])
            size += len(frame)
        return OutboundChunk(frames, answers, batches, not (pushes or self._batches))

    def assess(self, now: float) -> Pressure | None:
        """To be called after a write: the change since the last call, if any."""
        waiting = len(self.pushes)
        if self._closing:
            return None
        if waiting < limits.OUTBOUND_WARN_FRAMES:
            self.needs_assessment = False
            if not (self._warned or self.lagging):
                return None
            self._warned, self.lagging, self.close_at = False, False, None
            return Pressure.RECOVERED
        if waiting > limits.OUTBOUND_CRITICAL_FRAMES and self.close_at is None:
            self._warned, self.close_at = True, now + limits.SLOW_CONSUMER_GRACE_S
            return Pressure.CRITICAL
        if waiting > limits.OUTBOUND_WARN_FRAMES and not self._warned:
            self._warned = True
            return Pressure.WARNED
        return None

    def add_closing(self, frame: bytes) -> None:
        """There is always room for the closing frame."""
        self._answer_frames.append(frame)

    def take_answers(self) -> list[bytes]:
        """Answers and warnings, which a client that does not read still gets at the close."""
        frames, self._answer_frames, self._answers = self._answer_frames, [], 0
        return frames

    def sync_hints(self) -> dict[str, int]:
        """Per chat the sequence to sync from, because something after it has not left."""
        found: dict[str, int] = {}
        for _, chat_id, floor in self.pushes:
            found.setdefault(chat_id, floor)
        return found

    def floor(self, chat_id: str) -> int | None:
        """As `sync_hints`, for one chat; None when everything of it has left."""
        return next((floor for _, each, floor in self.pushes if each == chat_id), None)

    def refuse_pushes(self) -> None:
        """After the closing frame no push may follow; `sync_hints` has named those that waited."""
        self.pushes.clear()
        self.lagging = self._closing = True
        self.close_at = None

    @property
    def idle(self) -> bool:
        return not (self._answer_frames or self._batches or self.pushes)

    @property
    def waiting(self) -> int:
        return len(self.pushes)
