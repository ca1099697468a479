"""Smaller limits for smaller worlds: a buffer of a thousand is never full where twenty messages are sent.

The code under test is unchanged; only its numbers shrink, so that every full, held and paged path is met often.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random

from seriatim.connection.session import outbound
from seriatim.domain import limits

BUFFER_FRAMES = 4

Number = tuple[str, int]  # a limit of `domain.limits`, and its value

_ALWAYS: Sequence[Number] = (
    ("OUTBOUND_FRAMES_MAX", BUFFER_FRAMES),
    ("OUTBOUND_WARN_FRAMES", BUFFER_FRAMES - 2),
    ("OUTBOUND_CRITICAL_FRAMES", BUFFER_FRAMES - 1),
    ("HELD_MESSAGES_MAX", 3),
    ("PUBLISH_EVENTS_MAX", 3),
    ("SEALS_PER_READ_MAX", 2),
    ("CLIENT_SYNC_SLOTS", 3),
)

# What a world has in addition. The later number counts.
LIMIT_SETS: Mapping[str, Sequence[Number]] = {
    "usual": (),
    "one by one": (  # pages, fills and held messages of one
        ("FILL_SLOTS_MAX", 1),
        ("CLIENT_SYNC_SLOTS", 1),
        ("HELD_MESSAGES_MAX", 1),
    ),
    "few bytes": (  # pages end by their weight, before they end by their count: two or three small messages
        ("FILL_SLOTS_MAX", 2),
        ("BATCH_BYTES_MAX", 600),
        ("READ_BYTES_MAX", 650),
        ("RUN_RECORDS_MAX", 2),  # runs end before they may end, and a commit comes in the middle of a backlog
        ("COMMIT_RECORDS_MAX", 3),
    ),
    "narrow servers": (  # one of everything at a time, and a short queue before it
        ("TRANSACTION_ITEMS_MAX", 3),
        ("CHAT_QUEUE_DRAFTS_MAX", 2),
        ("ALLOCATIONS_MAX", 1),
        ("RECONCILE_CHATS_MAX", 1),
        ("FILLS_IN_PROGRESS_MAX", 1),
        ("POLL_RECORDS_MAX", 1),
        ("BACKLOG_PAUSE_RECORDS", 1),
        ("COMMIT_RECORDS_MAX", 1),
        ("REGISTRATION_BATCH_MAX", 1),
        ("PROBE_CHATS_MAX", 1),
        ("SYNCS_IN_PROGRESS_MAX", 1),
    ),
    "narrow connections": (  # few requests at a time on a connection, and little room for their answers
        ("INBOUND_REQUESTS_MAX", 3),
        ("CLIENT_ACK_FRAMES_MAX", 1),  # less than half of it, as ever
        ("PRIORITY_FRAMES_MAX", 2),
    ),
    "some room": (  # runs of several pushes leave together, and set free several that waited
        ("OUTBOUND_FRAMES_MAX", 8),
        ("OUTBOUND_WARN_FRAMES", 6),
        ("OUTBOUND_CRITICAL_FRAMES", 7),
        ("HELD_MESSAGES_MAX", 5),
    ),
}
# What the worlds of a narrow profile have in addition.
PROFILE_LIMITS: Mapping[str, Sequence[Number]] = {
    "regret": (("CLIENT_SEND_UNANSWERED_S", 1),),  # a second try leaves before the first is answered
}
USUAL = 0.5  # of the worlds; the rest share the other sets

_high_water = 0


@contextmanager
def tight_limits(chance: float = 0.0, profile: str = "") -> Iterator[None]:
    """`chance` in [0, 1) picks the set. Also watches every outbound buffer: `high_water` is the fullest one since."""
    global _high_water
    _high_water = 0
    push, take = outbound.OutboundBuffer.push, outbound.OutboundBuffer.take

    def note(buffer: outbound.OutboundBuffer) -> None:
        global _high_water
        _high_water = max(_high_water, len(buffer.pushes))

    def watched_push(self: outbound.OutboundBuffer, frame: bytes, chat_id: str, floor: int) -> bool:
        queued = push(self, frame, chat_id, floor)
        note(self)
        return queued

    def watched_take(self: outbound.OutboundBuffer, bytes_max: int) -> outbound.OutboundChunk | None:
        note(self)  # runs that found room were not pushed one by one
        return take(self, bytes_max)

    before: list[Number] = []
    try:
        for name, value in (*_ALWAYS, *LIMIT_SETS[limit_set(chance)], *PROFILE_LIMITS.get(profile, ())):
            before.append((name, getattr(limits, name)))
            setattr(limits, name, value)
        outbound.OutboundBuffer.push = watched_push  # type: ignore[method-assign]
        outbound.OutboundBuffer.take = watched_take  # type: ignore[method-assign]
        yield
    finally:
        outbound.OutboundBuffer.push, outbound.OutboundBuffer.take = push, take  # type: ignore[method-assign]
        for name, value in reversed(before):
            setattr(limits, name, value)


def limits_chance(seed: int) -> float:
    """What picks the set of limits of this seed's world. Drawn on its own, so that it changes nothing else."""
    return Random(seed ^ 0x71647).random()


def limit_set(chance: float) -> str:
    """Half of the worlds have the usual limits, the others one of the rest each."""
    usual, *others = LIMIT_SETS
    return usual if chance < USUAL else others[int((chance - USUAL) / (1 - USUAL) * len(others))]


def tightened() -> list[str]:
    """The names of all limits that some world tightens."""
    sets = (_ALWAYS, *LIMIT_SETS.values(), *PROFILE_LIMITS.values())
    return list(dict.fromkeys(name for numbers in sets for name, _ in numbers))


def high_water() -> int:
    return _high_water


def buffer_limit() -> int:
    """In force at this moment."""
    return limits.OUTBOUND_FRAMES_MAX
