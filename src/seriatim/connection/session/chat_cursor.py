"""How far one connection was sent one chat, and what may be sent next: every message, once, in order.

Pure. Pushes, own receipts and pages go in, in any order; `take` gives back what may leave now. What is missing shows
in `behind` and is read from durability by the owner.
"""

from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from enum import Enum
from heapq import heappop, heappush
from itertools import islice

import msgspec

from seriatim.domain import limits


class CursorPhase(Enum):
    UNSYNCED = "unsynced"  # no promise of completeness was asked for
    SYNCING = "syncing"  # the client reads pages; pushes wait until it has them all
    LIVE = "live"
    LAGGING = "lagging"  # the outbound buffer had no room; stands still until it drained


# A member of an enum costs ten times as much by way of its class, and every push asks.
_UNSYNCED, _SYNCING, _LIVE, _LAGGING = CursorPhase.UNSYNCED, CursorPhase.SYNCING, CursorPhase.LIVE, CursorPhase.LAGGING


# Its chat, its sequence, that of the message before it if known, and its frame. Plain, for a push is handled so often.
PushedMessage = tuple[str, int, int | None, bytes]

# What leaves: a frame, its chat, and the highest sequence of that chat that was sent before it.
QueuedPush = tuple[bytes, str, int]


class HeldMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that waits for those before it. No frame: the connection's own, which needs no sending."""

    prev_sequence: int | None
    frame: bytes | None


class ReorderBuffer(dict[int, HeldMessage]):
    """Held messages by their sequence. The lowest is asked for all the time, so a heap finds it."""

    __slots__ = ("_heap",)

    def __init__(self, held: Mapping[int, HeldMessage] | None = None) -> None:
        super().__init__(held or {})
        self._heap = sorted(self)  # every sequence that is held, and some that were taken

    def __setitem__(self, sequence: int, held: HeldMessage) -> None:
        if sequence not in self:
            heappush(self._heap, sequence)
        super().__setitem__(sequence, held)

    def keep(self, sequence: int, held: HeldMessage) -> None:
        """What is there stays as it is."""
        if sequence not in self:
            self[sequence] = held

    def lowest(self) -> int:
        """Not to be asked of an empty one."""
        heap = self._heap
        while heap[0] not in self:
            heappop(heap)
        return heap[0]

    def own(self) -> "ReorderBuffer":
        return ReorderBuffer({sequence: held for sequence, held in self.items() if held.frame is None})


class ChatCursor:
    """Everything at or below `delivered` was sent, was the client's own, or was there before. A slot, not a message.

    `highest` is the highest sequence known to exist. Everything at or below `stable` that is not delivered is held.
    While the chat is synced, `delivered` never goes back: what this connection was sent stays counted.
    """

    __slots__ = (
        "_before",
        "_sent",
        "acked",
        "chat_id",
        "delivered",
        "epoch",
        "filling",
        "held",
        "highest",
        "phase",
        "stable",
        "synced",
    )

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.phase = _UNSYNCED
        self.synced = False  # the client has told its own cursor, so `delivered` is about the client
        self.delivered = 0
        self.highest = 0
        self.stable = 0
        self.acked = 0  # the highest ack passed on, so that repeated ones cost nothing
        self.epoch = 0  # changes with every sync: an answer to a question of an older epoch moves nothing
        self.filling = False  # the owner's mark: one fill at a time
        self.held = ReorderBuffer()  # what waits for those before it
        self._before: tuple[CursorPhase, bool, int] | None = None  # to go back to when the sync fails
        self._sent = 0  # what was delivered when the client last began to sync: a page cannot undo that

    # --- pushes and receipts ------------------------------------------------------------------------------------------

    def pushed(self, sequence: int, prev_sequence: int | None, frame: bytes) -> None:
        if self.phase is _SYNCING:
            self.pushed_while_syncing(sequence, prev_sequence, frame)
        elif self.phase is _LAGGING:
            self.pushed_while_lagging(sequence)
        elif sequence > self.delivered:
            self.highest = max(self.highest, sequence)
            if len(self.held) < limits.HELD_MESSAGES_MAX:
                self.held.keep(sequence, HeldMessage(prev_sequence, frame))

    def next_in_line(self, sequence: int, prev_sequence: int | None) -> bool:
        """The message before it was the last one delivered: it may leave at once, and counts as delivered now.

        What `pushed` and `take` would come to, for nearly every push there is. What is held may fit after it.
        """
        delivered = self.delivered
        if (
            self.phase is not _LIVE
            or prev_sequence is None
            or not prev_sequence <= delivered < sequence
            or self.stable > delivered
            or not self.synced
            or (self.held and self.held.lowest() <= sequence)
        ):
            return False
        self.delivered = sequence
        if sequence > self.highest:
            self.highest = sequence
        return True

    def next_run(self, run: Sequence[PushedMessage], at: int, queue: MutableSequence[QueuedPush]) -> int:
        """As `next_in_line`, for as many from `at` on as are, with own messages passing between them; those go into the
        queue. Returns where it ended: at the end, at another chat, or at one that is not next in line.
        """
        delivered = self.delivered
        if self.phase is not _LIVE or not self.synced or self.stable > delivered:
            return at
        mine, held, before = self.chat_id, self.held, len(queue)
        barrier = held.lowest() if held else limits.SEQUENCE_MAX  # nothing may pass what waits
        for chat_id, sequence, prev_sequence, frame in islice(run, at, None) if at else run:
            if chat_id != mine:
                break
            if sequence >= barrier:
                self.delivered = delivered
                self.pass_own(sequence)
                delivered = self.delivered
                barrier = held.lowest() if held else limits.SEQUENCE_MAX
                if sequence >= barrier:
                    break
            if prev_sequence is None or not prev_sequence <= delivered < sequence:
                break
            queue.append((frame, chat_id, delivered))
            delivered = sequence
        self.delivered = delivered
        if delivered > self.highest:
            self.highest = delivered
        return at + len(queue) - before

    @property
    def settled(self) -> bool:
        """A synced chat of which nothing is missing and nothing waits."""
        return self.phase is _LIVE and self.synced and not self.held and self.highest <= self.delivered

    def pass_own(self, sequence: int) -> None:
        """Own messages before this one that are next in line count as delivered: their acks came before the pushes."""
        shelf = self.held
        while shelf and self.phase is _LIVE and (lowest := shelf.lowest()) < sequence:
            held, delivered = shelf[lowest], self.delivered
            if held.frame is not None or self.stable > delivered or not self.fits(held.prev_sequence):
                break
            del shelf[lowest]
            if lowest > delivered:
                self.delivered = lowest

    def waits_for(self, prev_sequence: int | None) -> bool:
        """LIVE, and this message is not the last one delivered: nothing can leave before it has come."""
        return self.phase is _LIVE and self.stable <= self.delivered and not self.fits(prev_sequence)

    def has(self, sequence: int) -> bool:
        """It was delivered, or waits for those before it: a push of it is a repetition, and is dropped."""
        return self.synced and (sequence <= self.delivered or sequence in self.held)

    def pushed_while_syncing(self, sequence: int, prev_sequence: int | None, frame: bytes) -> None:
        """A live message must not overtake the pages: only its existence is remembered."""
        self.highest = max(self.highest, sequence)

    def pushed_while_lagging(self, sequence: int) -> None:
        """It will be read back. A chat that was never synced is owed from the lowest push that found no room."""
        self.highest = max(self.highest, sequence)
        if not self.synced:
            self.delivered = self.stable = min(self.delivered, sequence - 1)

    def own(self, sequence: int, prev_sequence: int | None) -> bool:
        """This connection's own message was stored: like a push without sending, so it passes over nothing unsent.

        True: it was next in line, and counts as delivered.
        """
        if self.next_in_line(sequence, prev_sequence):
            return True
        self.highest = max(self.highest, sequence)
        if sequence in self.held or len(self.held) < limits.HELD_MESSAGES_MAX:
            self.held[sequence] = HeldMessage(prev_sequence, None)
        return False

    def exists(self, sequence: int) -> None:
        """The chat reaches this far, says someone who knows."""
        self.highest = max(self.highest, sequence)

    def take(self) -> HeldMessage | None:
        """The next message in order, now counted as delivered; None when the next one is missing, or must wait."""
        if self.phase is not _LIVE:
            return None
        while True:
            following = self.held.lowest() if self.held else None
            if following is not None and following <= self.delivered:
                self.held.pop(following)
            elif following is not None and (following <= self.stable or self.fits(self.held[following].prev_sequence)):
                self.delivered = following
                return self.held.pop(following)
            elif self.stable > self.delivered:
                self.delivered = self.stable
            else:
                return None

    def fits(self, prev_sequence: int | None) -> bool:
        """The message before it was delivered. Unknown is not good enough."""
        return prev_sequence is not None and prev_sequence <= self.delivered

    @property
    def behind(self) -> bool:
        """LIVE, and something is missing."""
        return self.phase is _LIVE and self.highest > self.delivered

    @property
    def owes(self) -> bool:
        """Something is known to exist that the client was not sent, and it did not ask for it itself."""
        return self.phase in (_LIVE, _LAGGING) and self.highest > self.delivered

    # --- filling ------------------------------------------------------------------------------------------------------

    def filled(self, messages: Iterable[tuple[int, bytes]], through: int) -> None:
        """Everything above `delivered` up to `through` was read. What is held already keeps its frame, or its lack."""
        for sequence, frame in messages:
            self.held.keep(sequence, HeldMessage(None, frame))
        self.stable = max(self.stable, through)
        self.highest = max(self.highest, through)

    def lag(self) -> None:
        """No room: keep only where we stand and which messages are the client's own."""
        self.phase = _LAGGING
        self.stable = self.delivered
        self.held = self.held.own()

    def stand_still(self) -> None:
        """Nothing is owed any more above what was sent; whatever comes later must join on to it."""
        self.highest = self.stable = self.delivered
        self.held = self.held.own()

    def lag_unsynced(self, sequence: int) -> None:
        """No room for a push of a chat that was never synced: what is owed begins with it."""
        self.phase = _LAGGING
        self.delivered = self.stable = sequence - 1
        self.highest = sequence

    def owed_unsynced(self, after: int, through: int) -> None:
        """A chat that was never synced, and of which the client was sent nothing between the two."""
        self.phase = _LIVE
        self.delivered = self.stable = after
        self.highest = through

    def drained(self) -> bool:
        """There is room again. True: this chat lagged and must be filled."""
        if self.phase is not _LAGGING:
            return False
        self.phase = _LIVE
        return True

    # --- syncing ------------------------------------------------------------------------------------------------------

    def sync_started(self, after: int) -> int:
        """The client says it has everything up to `after`. Returns the epoch to report the outcome with."""
        if self._before is None:
            self._before = (self.phase, self.synced, self.delivered)
            self.exists(self.delivered)
            if self.synced and self.delivered > self._sent:
                self._sent = self.delivered
        self.phase, self.synced = _SYNCING, True
        self.delivered = self.stable = after
        self.held = self.held.own()
        self.epoch += 1
        return self.epoch

    def page_sent(self, epoch: int, through: int, *, has_more: bool) -> None:
        """The client was sent everything up to `through`; a `through` below its cursor corrects the cursor.

        A last page that ends below what this connection was sent shows that the store has lost slots. They were sent
        all the same: to take them back would send again what the event log repeats.
        """
        if epoch != self.epoch:
            return
        self._before = None
        self.delivered = self.stable = through if has_more else max(through, self._sent)
        self.phase = _SYNCING if has_more else _LIVE
        self.epoch += 1

    def sync_failed(self, epoch: int) -> bool:
        """As if it had not been asked for; what was pushed meanwhile is known by `highest` and will be read back.

        False: a later sync decides where this chat stands.
        """
        if epoch != self.epoch or self._before is None:
            return False
        (self.phase, self.synced, self.delivered), self._before = self._before, None
        self.stable = self.delivered
        self.epoch += 1
        return True

    def abandon(self) -> None:
        """Whoever still works on this cursor stops."""
        self.phase, self.synced, self._before = _UNSYNCED, False, None
        self.epoch += 1

    # --- acknowledging ------------------------------------------------------------------------------------------------

    def known(self, sequence: int) -> int:
        """As far as anything is known to exist: the most that an ack may ever come to count for."""
        return min(sequence, max(self.highest, self.delivered))

    def clamp(self, sequence: int) -> int:
        """No ack counts beyond what was sent in one piece; the client's own cursor counts as sent."""
        return min(sequence, self.delivered) if self.synced else 0
