"""All chats of one connection: puts messages in order into the outbound buffer, and reads back those that are missing.

One fill at a time per chat, FILLS_IN_PROGRESS_MAX per gateway. A chat that was never synced gets pushes as they come;
it has a cursor only while it is owed pushes that found no room, which are read back from the first one on. The newest
messages of a chat that the user has joined lately are read as well, if no push has brought them.
"""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

from seriatim.connection.gateway_context import GatewayContext
from seriatim.connection.head_probe import HeadWatcher
from seriatim.connection.session.chat_cursor import ChatCursor, CursorPhase, PushedMessage
from seriatim.connection.session.outbound import OutboundBuffer
from seriatim.connection.session.responder import Responder
from seriatim.connection.task_group import TaskGroup
from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, SeriatimError, ServerBusy
from seriatim.ports.durability import PrefixPage
from seriatim.protocol.codec import encode
from seriatim.protocol.frames import message_frame


class ChatDelivery:
    """Puts frames into `outbound`, and has the responder flush it."""

    def __init__(
        self,
        user_id: str,
        outbound: OutboundBuffer,
        responder: Responder,
        context: GatewayContext,
        *,
        tasks: TaskGroup,
        watcher: HeadWatcher,
    ) -> None:
        self._user_id = user_id
        self._outbound = outbound
        self._context = context
        self._tasks = tasks
        self._watcher = watcher
        self._responder = responder
        self._cursors: dict[str, ChatCursor] = {}
        self._shown: dict[str, int] = {}  # unsynced chats: the highest sequence that was sent
        context.new_chat_probe.watch(user_id, self)

    # --- messages in --------------------------------------------------------------------------------------------------

    def deliver(self, run: Sequence[PushedMessage]) -> None:
        """Pushes from fanout. Nearly all are next in order, and are queued as one run."""
        outbound = self._outbound
        waited, at = len(outbound.pushes), 0
        if outbound.has_room(len(run)):
            at = self._deliver_contiguous(run)
        if at < len(run) and not self._deliver_each(run[at:]):
            self._responder.overload()
        elif len(outbound.pushes) != waited:
            self._responder.schedule_flush()

    def _deliver_contiguous(self, run: Sequence[PushedMessage]) -> int:
        """Queues as many as are next in order, from the first on; returns how many."""
        at, pushes = 0, self._outbound.pushes
        while at < len(run):
            cursor = self._cursors.get(run[at][0])
            if cursor is None:
                return at
            at = cursor.deliver_run(run, at, pushes)
            if at < len(run) and run[at][0] == cursor.chat_id:
                return at
            if cursor.held:
                self._settle(cursor)
                if not self._outbound.has_room(len(run) - at):
                    return at
        return at

    def _deliver_each(self, run: Sequence[PushedMessage]) -> bool:
        """One by one. Gaps are judged at the end of a chat's part of the run: the rest of it may fill them.

        False: no room for a push, nor for a cursor.
        """
        outbound = self._outbound
        cursor: ChatCursor | None = None
        unsettled = False
        for chat_id, sequence, prev_sequence, frame in run:
            if cursor is None or cursor.chat_id != chat_id:
                if cursor is not None and (unsettled or cursor.held):
                    self._settle(cursor)
                cursor, unsettled = self._cursors.get(chat_id), False
                if cursor is None:
                    if not self._deliver_unsynced(chat_id, sequence, frame):
                        return False
                    continue
            if not outbound.lagging:
                if cursor.held:
                    cursor.skip_own(sequence)
                floor = cursor.delivered
                if cursor.deliver_next(sequence, prev_sequence):
                    outbound.push(frame, chat_id, floor)
                    continue
            if cursor.has(sequence):
                self._context.observe.repeated()
            cursor.pushed(sequence, prev_sequence, frame)
            unsettled = True
        if cursor is not None and (unsettled or cursor.held):
            self._settle(cursor)
        return True

    def _settle(self, cursor: ChatCursor) -> None:
        """After a run. Held messages are nearly always the connection's own, acknowledged before these pushes came."""
        cursor.skip_own(cursor.highest + 1)
        if not cursor.settled:
            self.advance(cursor)

    def _deliver_unsynced(self, chat_id: str, sequence: int, frame: bytes) -> bool:
        """False: no room for the push, nor for a cursor."""
        if self._outbound.push(frame, chat_id, sequence - 1):
            self._note_shown(chat_id, sequence)
            return True
        if len(self._cursors) >= limits.CHATS_PER_CONNECTION_MAX:
            return False
        self._cursors[chat_id] = cursor = ChatCursor(chat_id)
        cursor.lag_unsynced(sequence)
        return True

    def own_stored(self, chat_id: str, sequence: int, prev_sequence: int | None) -> None:
        """The connection's own message was acknowledged to it: it gets no push of it."""
        cursor = self._cursors.get(chat_id)
        if cursor is None:
            if self._shown.get(chat_id, 0) == sequence - 1:
                self._note_shown(chat_id, sequence)
            return
        if cursor.own_stored(sequence, prev_sequence):
            if cursor.highest > sequence:
                self.advance(cursor)
        elif not (cursor.filling and cursor.waits_for(prev_sequence)):
            self.advance(cursor)

    def head(self, chat_id: str, sequence: int) -> None:
        if (cursor := self._cursors.get(chat_id)) is not None:
            cursor.exists(sequence)
            self.advance(cursor)

    def unsynced(self, chat_ids: Sequence[str]) -> Sequence[str]:
        return [chat_id for chat_id in chat_ids if chat_id not in self._cursors]

    def joined(self, chat_id: str, head: int) -> None:
        """A chat that the client may not know. It is owed what no push has brought, at most the newest
        NEW_CHATS_SLOTS_MAX slots: a client that keeps cursors syncs the rest.
        """
        shown = self._shown.get(chat_id, 0)
        if head <= shown or chat_id in self._cursors or len(self._cursors) >= limits.CHATS_PER_CONNECTION_MAX:
            return
        self._cursors[chat_id] = cursor = ChatCursor(chat_id)
        cursor.owed_unsynced(max(shown, head - limits.NEW_CHATS_SLOTS_MAX), head)
        self.advance(cursor, at_once=True)

    def drained(self) -> None:
        """There is room again: chats that lagged are read back."""
        for cursor in list(self._cursors.values()):
            if cursor.drained():
                self.advance(cursor, at_once=True)

    # --- messages out, and fills --------------------------------------------------------------------------------------

    def advance(self, cursor: ChatCursor, *, at_once: bool = False) -> None:
        """Queues what is contiguous. If messages are missing, starts a fill: `at_once`, or after GAP_WAIT_S."""
        outbound = self._outbound
        while not outbound.lagging:
            floor = cursor.delivered
            held = cursor.take_next()
            if held is None:
                break
            if held.frame is not None:
                outbound.push(held.frame, cursor.chat_id, floor)
                self._responder.schedule_flush()
        if cursor.behind:
            if outbound.lagging:
                cursor.lag()
            elif not cursor.filling:
                cursor.filling = True
                if at_once:
                    self._tasks.start(self._fill(cursor))
                else:
                    self._context.gap_timer.check_later(partial(self._check_gap, cursor, cursor.delivered))
        elif cursor.phase is CursorPhase.LIVE and not cursor.synced:
            self._note_shown(cursor.chat_id, cursor.delivered)
            self.forget(cursor)
        elif cursor.phase is CursorPhase.LAGGING and not outbound.lagging:
            cursor.drained()  # a sync failed after the buffer had drained
            self.advance(cursor, at_once=True)

    def _check_gap(self, cursor: ChatCursor, delivered: int) -> None:
        """GAP_WAIT_S after messages were missing above `delivered`."""
        if not cursor.behind:
            cursor.filling = False
        elif cursor.delivered > delivered:
            # That gap has closed by itself. The one that is open now is newer, and may close as well.
            self._context.gap_timer.check_later(partial(self._check_gap, cursor, cursor.delivered))
        else:
            self._tasks.start(self._fill(cursor))

    async def _fill(self, cursor: ChatCursor) -> None:
        """Reads page after page until nothing is missing, or pushes arrive again."""
        retry_s = limits.FILL_RETRY_S
        try:
            while cursor.behind:
                delivered = cursor.delivered
                await self._fill_once(cursor)
                if cursor.delivered > delivered:
                    retry_s = limits.FILL_RETRY_S
                    continue
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, limits.FILL_RETRY_MAX_S)
                if cursor.delivered > delivered:
                    break
        finally:
            cursor.filling = False
        if cursor.behind:
            self.advance(cursor)

    async def _fill_once(self, cursor: ChatCursor) -> None:
        """Reads one page and queues it, unless the client has begun a sync of its own meanwhile."""
        async with self._context.fill_slots:
            if not cursor.behind:
                return
            epoch = cursor.epoch
            try:
                page = await self._context.durability.read(
                    self._user_id,
                    cursor.chat_id,
                    after=cursor.delivered,
                    limit=limits.FILL_SLOTS_MAX,
                    timeout_s=limits.PERSIST_DEADLINE_S,
                )
            except NotAMember:
                if cursor.epoch == epoch:
                    self._membership_lost(cursor)
                return
            except SeriatimError as error:
                self._context.observe.fill_failed(error)
                return
        if cursor.epoch == epoch and cursor.behind:
            self._context.observe.filled(len(page.messages))
            cursor.filled(_frames(page), page.through)
            self.advance(cursor)

    def _membership_lost(self, cursor: ChatCursor) -> None:
        """The user may become a member again: a synced chat then goes on from its cursor and misses nothing.

        To forget the cursor would lose messages: the client still counts the chat as synced.
        """
        if cursor.synced:
            cursor.reset_to_delivered()
        else:
            self.forget(cursor)

    # --- syncing and acknowledging ------------------------------------------------------------------------------------

    def begin_sync(self, chat_id: str) -> ChatCursor:
        """The chat's cursor; a new one if it has none."""
        cursor = self._cursors.get(chat_id)
        if cursor is None:
            if len(self._cursors) >= limits.CHATS_PER_CONNECTION_MAX:
                raise ServerBusy("too many chats are open on this connection", retry_after_seconds=60)
            self._cursors[chat_id] = cursor = ChatCursor(chat_id)
        self._context.head_probe.watch(chat_id, self._watcher)
        self._shown.pop(chat_id, None)
        return cursor

    def sync_failed(self, cursor: ChatCursor, epoch: int, *, not_a_member: bool) -> None:
        """`not_a_member`: the user may not read this chat, so an earlier sync of it is void too."""
        if not cursor.sync_failed(epoch):
            return
        if not_a_member or cursor.phase is CursorPhase.UNSYNCED:
            self.forget(cursor)
        else:
            self.advance(cursor)

    def forget(self, cursor: ChatCursor) -> None:
        """The chat counts as unsynced until the client syncs it again."""
        cursor.abandon()
        if self._cursors.get(cursor.chat_id) is cursor:
            del self._cursors[cursor.chat_id]
            self._context.head_probe.unwatch(cursor.chat_id, self._watcher)

    def received_through(self, chat_id: str, sequence: int) -> int:
        """How much of an ack counts; 0: nothing. Messages that are still in the buffer were not received."""
        cursor = self._cursors.get(chat_id)
        if cursor is None:
            return 0
        clamped = cursor.clamp_to_delivered(sequence)
        floor = self._outbound.floor(chat_id)
        return clamped if floor is None else min(clamped, floor)

    def cursor(self, chat_id: str) -> ChatCursor | None:
        return self._cursors.get(chat_id)

    def sync_hints(self) -> dict[str, int]:
        """The sequence to sync from, for each chat with unsent messages."""
        sync_hints = self._outbound.sync_hints()
        for chat_id, cursor in self._cursors.items():
            if cursor.owes:
                sync_hints.setdefault(chat_id, cursor.delivered)
        return sync_hints

    def _note_shown(self, chat_id: str, sequence: int) -> None:
        if chat_id in self._shown or len(self._shown) < limits.CHATS_PER_CONNECTION_MAX:
            self._shown[chat_id] = max(sequence, self._shown.get(chat_id, 0))

    def forget_all(self) -> None:
        self._context.new_chat_probe.unwatch(self._user_id, self)
        for cursor in list(self._cursors.values()):
            self.forget(cursor)


def _frames(page: PrefixPage) -> Iterator[tuple[int, bytes]]:
    prev_sequence = None
    for message in page.messages:
        yield message.sequence, encode(message_frame(message, prev_sequence))
        prev_sequence = message.sequence
