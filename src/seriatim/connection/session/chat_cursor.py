"""How far one chat was sent to one connection, and what may be sent next: every message, once, in order.

Pure. Pushes, own receipts and pages come in any order; `take_next` returns what may leave now. `behind` says that
messages are missing; the owner reads them from durability.
"""

from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from enum import Enum
from heapq import heappop, heappush
from itertools import islice

import msgspec

from seriatim.domain import limits


class CursorPhase(Enum):
    UNSYNCED = "unsynced"  # the client has not synced it: pushes are sent as they come
    SYNCING = "syncing"  # the client reads pages; pushes wait until it has the last one
    LIVE = "live"
    LAGGING = "lagging"  # the outbound buffer had no room; nothing is sent until it has drained


# Read once: a member of an enum costs ten times as much by way of its class, and every push compares.
_UNSYNCED, _SYNCING, _LIVE, _LAGGING = CursorPhase.UNSYNCED, CursorPhase.SYNCING, CursorPhase.LIVE, CursorPhase.LAGGING


# Chat, sequence, sequence of the message before it if known, frame. A plain tuple: this is the hot path.
PushedMessage = tuple[str, int, int | None, bytes]

# A frame in the outbound buffer, its chat, and the highest sequence of that chat that was sent before it.
QueuedPush = tuple[bytes, str, int]


class HeldMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that waits for those before it. `frame` is None for the connection's own, which is not sent."""

    prev_sequence: int | None
    frame: bytes | None


class ReorderBuffer(dict[int, HeldMessage]):
    """Held messages by sequence, with a heap for the lowest."""

    __slots__ = ("_heap",)

    def __init__(self, held: Mapping[int, HeldMessage] | None = None) -> None:
        super().__init__(held or {})
        self._heap = sorted(self)  # every held sequence, and some that are not held any more

    def __setitem__(self, sequence: int, held: HeldMessage) -> None:
        if sequence not in self:
            heappush(self._heap, sequence)
        super().__setitem__(sequence, held)

    def add_if_absent(self, sequence: int, held: HeldMessage) -> None:
        """A message that is held already stays as it is."""
        if sequence not in self:
            self[sequence] = held

    def lowest(self) -> int:
        """The buffer must not be empty."""
        heap = self._heap
        while heap[0] not in self:
            heappop(heap)
        return heap[0]

    def own_only(self) -> "ReorderBuffer":
        return ReorderBuffer({sequence: held for sequence, held in self.items() if held.frame is None})


class ChatCursor:
    """Everything at or below the slot `delivered` was sent, was the client's own, or is older than its sync.

    `highest` is the highest sequence known to exist. Everything at or below `stable` that is not delivered is held.
    While the chat is synced, `delivered` never goes back.
    """

    __slots__ = (
        "_before_sync",
        "_delivered_before_sync",
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
        self.synced = False  # the client has sent its own cursor, so `delivered` counts from there
        self.delivered = 0
        self.highest = 0
        self.stable = 0
        self.acked = 0  # the highest ack that is stored, so that repeated ones cost nothing
        self.epoch = 0  # changes with every sync: a page read in an older epoch moves nothing
        self.filling = False  # set by the owner: one fill at a time
        self.held = ReorderBuffer()  # messages that wait for those before them
        self._before_sync: tuple[CursorPhase, bool, int] | None = None  # restored when the sync fails
        self._delivered_before_sync = 0  # a page cannot lower `delivered` below this

    # --- pushes and receipts ------------------------------------------------------------------------------------------

    def pushed(self, sequence: int, prev_sequence: int | None, frame: bytes) -> None:
        if self.phase is _SYNCING:
            self.pushed_while_syncing(sequence, prev_sequence, frame)
        elif self.phase is _LAGGING:
            self.pushed_while_lagging(sequence)
        elif sequence > self.delivered:
            self.highest = max(self.highest, sequence)
            if len(self.held) < limits.HELD_MESSAGES_MAX:
                self.held.add_if_absent(sequence, HeldMessage(prev_sequence, frame))

    def deliver_next(self, sequence: int, prev_sequence: int | None) -> bool:
        """True: nothing lies between the last delivered message and this one. It counts as delivered; send it now.

        The fast path for nearly every push, equal to `pushed` and `take_next`. Held messages may follow it.
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

    def deliver_run(self, run: Sequence[PushedMessage], at: int, queue: MutableSequence[QueuedPush]) -> int:
        """`deliver_next` for the messages of `run` from `at` on; each is appended to `queue`. Own ones are skipped.

        Returns the index where it stopped: the end, a message of another chat, or one that is not next.
        """
        delivered = self.delivered
        if self.phase is not _LIVE or not self.synced or self.stable > delivered:
            return at
        mine, held, before = self.chat_id, self.held, len(queue)
        barrier = held.lowest() if held else limits.SEQUENCE_MAX  # nothing may overtake a held message
        for chat_id, sequence, prev_sequence, frame in islice(run, at, None) if at else run:
            if chat_id != mine:
                break
            if sequence >= barrier:
                self.delivered = delivered
                self.skip_own(sequence)
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
        """Synced, nothing is missing and nothing is held."""
        return self.phase is _LIVE and self.synced and not self.held and self.highest <= self.delivered

    def skip_own(self, sequence: int) -> None:
        """Counts held own messages below this one as delivered, as far as they are next: no push of them will come."""
        buffer = self.held
        while buffer and self.phase is _LIVE and (lowest := buffer.lowest()) < sequence:
            held, delivered = buffer[lowest], self.delivered
            if held.frame is not None or self.stable > delivered or not self.follows_delivered(held.prev_sequence):
                break
            del buffer[lowest]
            if lowest > delivered:
                self.delivered = lowest

    def waits_for(self, prev_sequence: int | None) -> bool:
        """LIVE, and the message at `prev_sequence` was not delivered: nothing can leave before it has come."""
        return self.phase is _LIVE and self.stable <= self.delivered and not self.follows_delivered(prev_sequence)

    def has(self, sequence: int) -> bool:
        """Delivered or held: another push of it is a repetition, and is dropped."""
        return self.synced and (sequence <= self.delivered or sequence in self.held)

    def pushed_while_syncing(self, sequence: int, prev_sequence: int | None, frame: bytes) -> None:
        """A live message must not overtake the pages: only its sequence is kept."""
        self.highest = max(self.highest, sequence)

    def pushed_while_lagging(self, sequence: int) -> None:
        """It will be read back. An unsynced chat is owed from the lowest push that found no room."""
        self.highest = max(self.highest, sequence)
        if not self.synced:
            self.delivered = self.stable = min(self.delivered, sequence - 1)

    def own_stored(self, sequence: int, prev_sequence: int | None) -> bool:
        """This connection's own message was stored: as a push, but nothing is sent. It skips no unsent message.

        True: it was next, and counts as delivered.
        """
        if self.deliver_next(sequence, prev_sequence):
            return True
        self.highest = max(self.highest, sequence)
        if sequence in self.held or len(self.held) < limits.HELD_MESSAGES_MAX:
            self.held[sequence] = HeldMessage(prev_sequence, None)
        return False

    def exists(self, sequence: int) -> None:
        """The chat is known to have a message at this sequence."""
        self.highest = max(self.highest, sequence)

    def take_next(self) -> HeldMessage | None:
        """The next message in order, now counted as delivered; None when the next one is missing or must wait."""
        if self.phase is not _LIVE:
            return None
        while True:
            following = self.held.lowest() if self.held else None
            if following is not None and following <= self.delivered:
                self.held.pop(following)
            elif following is not None and (
                following <= self.stable or self.follows_delivered(self.held[following].prev_sequence)
            ):
                self.delivered = following
                return self.held.pop(following)
            elif self.stable > self.delivered:
                self.delivered = self.stable
            else:
                return None

    def follows_delivered(self, prev_sequence: int | None) -> bool:
        """The message before it was delivered. An unknown one counts as missing."""
        return prev_sequence is not None and prev_sequence <= self.delivered

    @property
    def behind(self) -> bool:
        """LIVE, and something is missing."""
        return self.phase is _LIVE and self.highest > self.delivered

    @property
    def owes(self) -> bool:
        """A message exists that the client was not sent, and does not read by a sync of its own."""
        return self.phase in (_LIVE, _LAGGING) and self.highest > self.delivered

    # --- filling ------------------------------------------------------------------------------------------------------

    def filled(self, messages: Iterable[tuple[int, bytes]], through: int) -> None:
        """Everything above `delivered` up to `through` was read. A message that is held already stays as it is."""
        for sequence, frame in messages:
            self.held.add_if_absent(sequence, HeldMessage(None, frame))
        self.stable = max(self.stable, through)
        self.highest = max(self.highest, through)

    def lag(self) -> None:
        """No room: drops held frames, keeps `delivered` and which messages are the client's own."""
        self.phase = _LAGGING
        self.stable = self.delivered
        self.held = self.held.own_only()

    def reset_to_delivered(self) -> None:
        """Nothing above `delivered` is owed any more. Later messages must follow it."""
        self.highest = self.stable = self.delivered
        self.held = self.held.own_only()

    def lag_unsynced(self, sequence: int) -> None:
        """No room for a push of an unsynced chat: the chat is owed from this message on."""
        self.phase = _LAGGING
        self.delivered = self.stable = sequence - 1
        self.highest = sequence

    def owed_unsynced(self, after: int, through: int) -> None:
        """An unsynced chat is owed the messages above `after`, up to `through`."""
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
        """The client has everything up to `after`. Returns the epoch for `page_sent` or `sync_failed`."""
        if self._before_sync is None:
            self._before_sync = (self.phase, self.synced, self.delivered)
            self.exists(self.delivered)
            if self.synced and self.delivered > self._delivered_before_sync:
                self._delivered_before_sync = self.delivered
        self.phase, self.synced = _SYNCING, True
        self.delivered = self.stable = after
        self.held = self.held.own_only()
        self.epoch += 1
        return self.epoch

    def page_sent(self, epoch: int, through: int, *, has_more: bool) -> None:
        """The client was sent everything up to `through`; a `through` below its cursor corrects the cursor.

        A last page that ends below what this connection was sent before shows that the store has lost slots. They stay
        delivered: otherwise repeated events would be sent again.
        """
        if epoch != self.epoch:
            return
        self._before_sync = None
        self.delivered = self.stable = through if has_more else max(through, self._delivered_before_sync)
        self.phase = _SYNCING if has_more else _LIVE
        self.epoch += 1

    def sync_failed(self, epoch: int) -> bool:
        """Restores the state before the sync. Messages pushed meanwhile are known by `highest` and will be read back.

        False: a later sync has begun, and decides.
        """
        if epoch != self.epoch or self._before_sync is None:
            return False
        (self.phase, self.synced, self.delivered), self._before_sync = self._before_sync, None
        self.stable = self.delivered
        self.epoch += 1
        return True

    def abandon(self) -> None:
        """Makes tasks that still use this cursor stop: the epoch changes."""
        self.phase, self.synced, self._before_sync = _UNSYNCED, False, None
        self.epoch += 1

    # --- acknowledging ------------------------------------------------------------------------------------------------

    def clamp_to_known(self, sequence: int) -> int:
        """No ack counts beyond the highest message known to exist."""
        return min(sequence, max(self.highest, self.delivered))

    def clamp_to_delivered(self, sequence: int) -> int:
        """No ack counts beyond `delivered`; 0 while the chat is not synced."""
        return min(sequence, self.delivered) if self.synced else 0
