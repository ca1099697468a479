"""Smaller limits for smaller worlds: a buffer of a thousand is never full where twenty messages are sent.

The code under test is unchanged; only its numbers shrink, so that every full, held and paged path is met often.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from seriatim.connection import chat_cursor, inbound, outbound, probe, registration, syncs
from seriatim.domain import limits
from seriatim.engines.memory import store
from seriatim.simulation import device

BUFFER_FRAMES = 4

Number = tuple[object, str, int]

_ALWAYS: Sequence[Number] = (
    (outbound, "OUTBOUND_FRAMES_MAX", BUFFER_FRAMES),
    (outbound, "WARN_FRAMES", BUFFER_FRAMES - 2),
    (outbound, "CRITICAL_FRAMES", BUFFER_FRAMES - 1),
    (chat_cursor, "HELD_MESSAGES_MAX", 3),
    (limits, "PUBLISH_EVENTS_MAX", 3),
    (limits, "SEALS_PER_READ_MAX", 2),
)

# What a world has in addition. The later number counts.
LIMIT_SETS: Mapping[str, Sequence[Number]] = {
    "usual": (),
    "one by one": (  # pages, fills and held messages of one
        (limits, "FILL_SLOTS_MAX", 1),
        (device, "PAGE_SLOTS", 1),
        (chat_cursor, "HELD_MESSAGES_MAX", 1),
    ),
    "few bytes": (  # pages end by their weight, before they end by their count: two or three small messages
        (limits, "FILL_SLOTS_MAX", 2),
        (limits, "BATCH_BYTES_MAX", 900),
        (store, "READ_BYTES_MAX", 650),
        (limits, "RUN_RECORDS_MAX", 2),  # runs end before they may end, and a commit comes in the middle of a backlog
        (limits, "COMMIT_RECORDS_MAX", 3),
    ),
    "narrow servers": (  # one of everything at a time, and a short queue before it
        (limits, "TRANSACTION_ITEMS_MAX", 3),
        (limits, "CHAT_QUEUE_DRAFTS_MAX", 2),
        (limits, "ALLOCATIONS_MAX", 1),
        (limits, "RECONCILE_CHATS_MAX", 1),
        (limits, "FILLS_IN_PROGRESS_MAX", 1),
        (limits, "POLL_RECORDS_MAX", 1),
        (limits, "BACKLOG_PAUSE_RECORDS", 1),
        (limits, "COMMIT_RECORDS_MAX", 1),
        (registration, "REGISTRATION_BATCH_MAX", 1),
        (probe, "PROBE_CHATS_MAX", 1),
        (syncs, "SYNCS_IN_PROGRESS_MAX", 1),
    ),
    "narrow connections": (  # few requests at a time on a connection, and little room for their answers
        (inbound, "INBOUND_REQUESTS_MAX", 3),
        (limits, "CLIENT_ACK_FRAMES_MAX", 1),  # less than half of it, as ever
        (outbound, "PRIORITY_FRAMES_MAX", 3),
    ),
    "some room": (  # runs of several pushes leave together, and set free several that waited
        (outbound, "OUTBOUND_FRAMES_MAX", 8),
        (outbound, "WARN_FRAMES", 6),
        (outbound, "CRITICAL_FRAMES", 7),
        (chat_cursor, "HELD_MESSAGES_MAX", 5),
    ),
}
# What the worlds of a narrow profile have in addition.
PROFILE_LIMITS: Mapping[str, Sequence[Number]] = {
    "regret": ((limits, "CLIENT_SEND_UNANSWERED_S", 1),),  # a second try leaves before the first is answered
}
USUAL = 0.5  # of the worlds; the rest share the other sets

_high_water = 0


@contextmanager
def tight_limits(chance: float = 0.0, profile: str = "") -> Iterator[None]:
    """`chance` in [0, 1) picks the set. Also watches every outbound buffer: `high_water` is the fullest one since."""
    global _high_water
    _high_water = 0
    push, take = outbound.Outbound.push, outbound.Outbound.take

    def note(buffer: outbound.Outbound) -> None:
        global _high_water
        _high_water = max(_high_water, len(buffer.pushes))

    def watched_push(self: outbound.Outbound, frame: bytes, chat_id: str, floor: int) -> bool:
        queued = push(self, frame, chat_id, floor)
        note(self)
        return queued

    def watched_take(self: outbound.Outbound, bytes_max: int) -> outbound.Chunk | None:
        note(self)  # runs that found room were not pushed one by one
        return take(self, bytes_max)

    before: list[tuple[object, str, int]] = []
    try:
        for module, name, value in (*_ALWAYS, *LIMIT_SETS[limit_set(chance)], *PROFILE_LIMITS.get(profile, ())):
            before.append((module, name, getattr(module, name)))
            setattr(module, name, value)
        outbound.Outbound.push = watched_push  # type: ignore[method-assign]
        outbound.Outbound.take = watched_take  # type: ignore[method-assign]
        yield
    finally:
        outbound.Outbound.push, outbound.Outbound.take = push, take  # type: ignore[method-assign]
        for module, name, value in reversed(before):
            setattr(module, name, value)


def limit_set(chance: float) -> str:
    """Half of the worlds have the usual limits, the others one of the rest each."""
    usual, *others = LIMIT_SETS
    return usual if chance < USUAL else others[int((chance - USUAL) / (1 - USUAL) * len(others))]


def high_water() -> int:
    return _high_water


def buffer_limit() -> int:
    """In force at this moment."""
    return int(vars(outbound)["OUTBOUND_FRAMES_MAX"])
