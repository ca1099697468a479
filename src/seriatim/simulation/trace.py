"""What happened in a schedule, one line per event, a lane per process; and a digest by which replays are compared."""

import hashlib
from collections.abc import Iterator
from enum import StrEnum


class Keep(StrEnum):
    """How much of a schedule is kept."""

    NOTHING = "nothing"
    DIGEST = "digest"
    LINES = "lines"


class Trace:
    """Read `on` before building a text: a schedule without a trace should not pay for one."""

    def __init__(self, keep: Keep = Keep.NOTHING) -> None:
        self.on = keep is not Keep.NOTHING
        self.lines: list[tuple[float, str, str]] = []
        self._keep_lines = keep is Keep.LINES
        self._hash = hashlib.sha256()

    def note(self, at: float, lane: str, text: str) -> None:
        if self.on:
            self._hash.update(f"{at:.6f}|{lane}|{text}\n".encode())
            if self._keep_lines:
                self.lines.append((at, lane, text))

    def digest(self) -> str:
        """Equal for equal traces, also on another machine. Empty when nothing was kept."""
        return self._hash.hexdigest() if self.on else ""

    def plain(self) -> Iterator[str]:
        """One line per event, nothing cut: for files and for grep."""
        width = max((len(lane) for _, lane, _ in self.lines), default=0)
        for at, lane, text in self.lines:
            yield f"{at:11.6f}  {lane:<{width}}  {text}"
