"""The rules of docs/spec/delivery.md, each as the patch that takes it out of connection, fanout or directory."""

from collections.abc import Sequence

import pytest

from seriatim.connection.session.chat_cursor import ChatCursor
from seriatim.connection.session.connection import Connection
from seriatim.connection.session.outbound import OutboundBuffer
from seriatim.domain import limits
from seriatim.engines.inprocess.directory import InProcessRegistry, _ExpiringSet
from seriatim.fanout.dead_letters import DeadLetters
from seriatim.fanout.partition_worker import PartitionWorker
from seriatim.ports.directory import Registration
from seriatim.ports.event_log import DeadLetter, Record
from seriatim.protocol.codec import encode
from seriatim.protocol.frames import ErrorFrame
from seriatim.simulation.mutants.catalogue import MUTANTS
from tests.support.holes import RuleRemoved


def mutant(name: str) -> RuleRemoved:
    """The patch that the simulator's mutant of this name applies."""

    def remove(patch: pytest.MonkeyPatch) -> None:
        for owner, attribute, replacement in MUTANTS[name].patches():
            patch.setattr(owner, attribute, replacement)

    return remove


# --- H10: dead devices ---------------------------------------------------------------------------------------------


def the_sets_decide_who_lives(patch: pytest.MonkeyPatch) -> None:
    def live(self: InProcessRegistry, sets: dict[str, _ExpiringSet], name: str, now_ms: int) -> Sequence[Registration]:
        known = sets.get(name)
        if known is None or now_ms >= known.expires_ms:
            return ()
        return tuple(self._connections[connection_id][0] for connection_id in known.ids)

    patch.setattr(InProcessRegistry, "_live", live)


# --- H12: the consumer skips ---------------------------------------------------------------------------------------


def a_failed_record_is_passed(patch: pytest.MonkeyPatch) -> None:
    """An exception ends the attempt, and the next record moves the offset past it."""

    async def recover(self: PartitionWorker, record: Record, error: Exception, attempts: int) -> bool:
        return True

    patch.setattr(PartitionWorker, "recover", recover)


def what_was_fetched_counts_as_handled(patch: pytest.MonkeyPatch) -> None:
    """A partition is given back at the reader's position instead of at the first unhandled record."""
    original = PartitionWorker.stop

    def stop(self: PartitionWorker) -> None:
        if self._backlog:
            self._next_offset = self._backlog[-1].offset + 1
        self.advance = lambda run: None  # type: ignore[method-assign]
        original(self)

    patch.setattr(PartitionWorker, "stop", stop)


# --- H13: a dead letter cannot be written --------------------------------------------------------------------------


def an_unwritten_dead_letter_counts_as_written(patch: pytest.MonkeyPatch) -> None:
    original = DeadLetters.write

    async def write(self: DeadLetters, dead_letter: DeadLetter) -> bool:
        await original(self, dead_letter)
        return True

    patch.setattr(DeadLetters, "write", write)


# --- H17: slow consumers -------------------------------------------------------------------------------------------


def a_full_buffer_drops(patch: pytest.MonkeyPatch) -> None:
    def push(self: OutboundBuffer, frame: bytes, chat_id: str, floor: int) -> bool:
        if len(self.pushes) < limits.OUTBOUND_FRAMES_MAX:
            self.pushes.append((frame, chat_id, floor))
        return True

    patch.setattr(OutboundBuffer, "push", push)


def a_slow_consumer_is_closed_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limits, "SLOW_CONSUMER_GRACE_S", 0.0)


def warnings_wait_their_turn(patch: pytest.MonkeyPatch) -> None:
    """A client that reads slowly is warned only after everything that waits before the warning."""

    def warn(self: Connection, frame: ErrorFrame) -> None:
        self._outbound.pushes.append((encode(frame), "", 0))

    patch.setattr(Connection, "_warn", warn)


# --- H18: the sender's side ----------------------------------------------------------------------------------------


def own_messages_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    def own(self: ChatCursor, sequence: int, prev_sequence: int | None) -> bool:
        return False

    patch.setattr(ChatCursor, "own_stored", own)
