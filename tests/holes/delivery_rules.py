"""Rules of connection, fanout and directory whose loss only a story shows: the simulator has no mutant for them."""

from collections.abc import Sequence

from seriatim.connection.session.chat_cursor import ChatCursor
from seriatim.connection.session.connection import Connection
from seriatim.engines.inprocess.directory import InProcessRegistry, _ExpiringSet
from seriatim.fanout.partition_worker import DeadLetters, PartitionWorker
from seriatim.ports.directory import Registration
from seriatim.ports.event_log import DeadLetter
from seriatim.protocol.codec import encode
from seriatim.protocol.frames import ErrorFrame
from seriatim.simulation.mutants.mutant import Patch
from tests.holes.removed_rule import removes


@removes("a registration that was not renewed has expired, though another one of its user was", hole="H10")
def registrations_do_not_expire_one_by_one() -> Sequence[Patch]:
    def live(self: InProcessRegistry, sets: dict[str, _ExpiringSet], name: str, now_ms: int) -> Sequence[Registration]:
        known = sets.get(name)
        if known is None or now_ms >= known.expires_ms:
            return ()
        return tuple(self._connections[connection_id][0] for connection_id in known.ids)

    return [(InProcessRegistry, "_live", live)]


@removes("a partition is given back at its first unhandled record", hole="H12")
def what_was_fetched_counts_as_handled() -> Sequence[Patch]:
    """A partition is given back at the reader's position instead of at the first unhandled record."""
    original = PartitionWorker.stop

    def stop(self: PartitionWorker) -> None:
        if self._backlog:
            self._next_offset = self._backlog[-1].offset + 1
        self.advance = lambda run: None  # type: ignore[method-assign]
        original(self)

    return [(PartitionWorker, "stop", stop)]


@removes("a record is passed only once its dead letter is written", hole="H13")
def an_unwritten_dead_letter_counts_as_written() -> Sequence[Patch]:
    original = DeadLetters.write

    async def write(self: DeadLetters, dead_letter: DeadLetter) -> bool:
        await original(self, dead_letter)
        return True

    return [(DeadLetters, "write", write)]


@removes("a warning overtakes the pushes that wait", hole="H17")
def warnings_wait_their_turn() -> Sequence[Patch]:
    """A client that reads slowly is warned only after everything that waits before the warning."""

    def warn(self: Connection, frame: ErrorFrame) -> None:
        self._outbound.pushes.append((encode(frame), "", 0))

    return [(Connection, "_warn", warn)]


@removes("an own message counts as delivered on its connection", hole="H18")
def own_messages_are_not_counted() -> Sequence[Patch]:
    def own(self: ChatCursor, sequence: int, prev_sequence: int | None) -> bool:
        return False

    return [(ChatCursor, "own_stored", own)]
