"""Smaller limits for smaller worlds: a buffer of a thousand is never full where twenty messages are sent.

The code under test is unchanged; only its numbers shrink, so that every full, held and paged path is met often.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from seriatim.connection import chat_cursor, outbound
from seriatim.domain import limits

BUFFER_FRAMES = 4

_high_water = 0


@contextmanager
def tight_limits() -> Iterator[None]:
    """Also watches every outbound buffer: `high_water` is the fullest one since."""
    global _high_water
    _high_water = 0
    push = outbound.Outbound.push

    def watched_push(self: outbound.Outbound, frame: bytes, chat_id: str, floor: int) -> bool:
        global _high_water
        queued = push(self, frame, chat_id, floor)
        _high_water = max(_high_water, len(self._pushes))
        return queued

    numbers = [
        (outbound, "OUTBOUND_FRAMES_MAX", BUFFER_FRAMES),
        (outbound, "WARN_FRAMES", BUFFER_FRAMES - 2),
        (outbound, "CRITICAL_FRAMES", BUFFER_FRAMES - 1),
        (chat_cursor, "HELD_MESSAGES_MAX", 3),
        (limits, "PUBLISH_EVENTS_MAX", 3),
        (limits, "SEALS_PER_READ_MAX", 2),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in numbers]
    try:
        for module, name, value in numbers:
            setattr(module, name, value)
        outbound.Outbound.push = watched_push  # type: ignore[method-assign]
        yield
    finally:
        outbound.Outbound.push = push  # type: ignore[method-assign]
        for module, name, value in before:
            setattr(module, name, value)


def high_water() -> int:
    return _high_water
