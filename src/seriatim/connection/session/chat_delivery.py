"""All chats of one connection: puts what arrives in order into the outbound buffer and reads back what did not.

One fill at a time per chat, FILLS_IN_PROGRESS_MAX per gateway. A chat that was never synced gets pushes as they come
and is kept account of only while it is owed some that found no room: those are read back from the first one missed.
The newest messages of a chat that the user has joined lately are read as well, if no push has shown them.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from seriatim.connection.gateway_context import GatewayContext
from seriatim.connection.head_probe import HeadWatcher
from seriatim.connection.session.chat_cursor import ChatCursor, CursorPhase, PushedMessage
from seriatim.connection.session.outbound import OutboundBuffer
from seriatim.connection.task_group import TaskGroup
from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, SeriatimError, ServerBusy
from seriatim.ports.durability import PrefixPage
from seriatim.protocol.codec import encode
from seriatim.protocol.frames import message_frame


class ChatDelivery:
    """`changed`: something waits in `outbound`. `overwhelmed`: a push can neither be sent nor be remembered."""

    def __init__(
        self,
        user_id: str,
        outbound: OutboundBuffer,
        services: GatewayContext,
        *,
        tasks: TaskGroup,
        watcher: HeadWatcher,
        changed: Callable[[], None],
        overwhelmed: Callable[[], None],
    ) -> None:
        self._user_id = user_id
        self._outbound = outbound
        self._services = services
        self._tasks = tasks
        self._watcher = watcher
        self._changed = changed
        self._overwhelmed = overwhelmed
        self._cursors: dict[str, ChatCursor] = {}
        self._shown: dict[str, int] = {}  # the highest message that a chat which was never synced was sent
        services.new_chats.watch(user_id, self)

    # --- what arrives -------------------------------------------------------------------------------------------------

    def deliver(self, run: Sequence[PushedMessage]) -> None:
        """Pushes from fanout. Nearly all are next in line, and leave without being looked at one by one."""
        outbound = self._outbound
        waited, at = len(outbound.pushes), 0
        if outbound.has_room(len(run)):
            at = self._pass_on(run)
        if at < len(run) and not self._take_in(run[at:]):
            self._overwhelmed()
        elif len(outbound.pushes) != waited:
            self._changed()

    def _pass_on(self, run: Sequence[PushedMessage]) -> int:
        """How many of them it was, from the first on, that only needed to be sent."""
        at, pushes = 0, self._outbound.pushes
        while at < len(run):
            cursor = self._cursors.get(run[at][0])
            if cursor is None:
                return at
            at = cursor.next_run(run, at, pushes)
            if at < len(run) and run[at][0] == cursor.chat_id:
                return at
            if cursor.held:
                self._settle(cursor)
                if not self._outbound.has_room(len(run) - at):
                    return at
        return at

    def _take_in(self, run: Sequence[PushedMessage]) -> bool:
        """One by one. What waits is looked at when a chat's part of the run is over, for the rest of it may be what is
        missing. False: a push can neither be sent nor be remembered.
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
                    cursor.pass_own(sequence)
                floor = cursor.delivered
                if cursor.next_in_line(sequence, prev_sequence):
                    outbound.push(frame, chat_id, floor)
                    continue
            if cursor.has(sequence):
                self._services.observe.repeated()
            cursor.pushed(sequence, prev_sequence, frame)
            unsettled = True
        if cursor is not None and (unsettled or cursor.held):
            self._settle(cursor)
        return True

    def _settle(self, cursor: ChatCursor) -> None:
        """After a run. What waits is nearly always the connection's own, acknowledged before these pushes came."""
        cursor.pass_own(cursor.highest + 1)
        if not cursor.settled:
            self.advance(cursor)

    def _deliver_unsynced(self, chat_id: str, sequence: int, frame: bytes) -> bool:
        """False: it can neither be sent nor be remembered."""
        if self._outbound.push(frame, chat_id, sequence - 1):
            self._note_shown(chat_id, sequence)
            return True
        if len(self._cursors) >= limits.CHATS_PER_CONNECTION_MAX:
            return False
        self._cursors[chat_id] = cursor = ChatCursor(chat_id)
        cursor.lag_unsynced(sequence)
        return True

    def own(self, chat_id: str, sequence: int, prev_sequence: int | None) -> None:
        """The connection's own message was acknowledged to it: no echo will come and none is needed."""
        cursor = self._cursors.get(chat_id)
        if cursor is None:
            if self._shown.get(chat_id, 0) == sequence - 1:
                self._note_shown(chat_id, sequence)
            return
        if cursor.own(sequence, prev_sequence):
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
        """A chat of which the client may not know. It is owed what no push has shown, the newest NEW_CHATS_SLOTS_MAX of
        it at most: a client that keeps cursors asks for the rest.
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

    # --- what leaves --------------------------------------------------------------------------------------------------

    def advance(self, cursor: ChatCursor, *, at_once: bool = False) -> None:
        """Sends what is contiguous; starts a fill if something is missing, after a moment for it to arrive unasked."""
        outbound = self._outbound
        while not outbound.lagging:
            floor = cursor.delivered
            held = cursor.take()
            if held is None:
                break
            if held.frame is not None:
                outbound.push(held.frame, cursor.chat_id, floor)
                self._changed()
        if cursor.behind:
            if outbound.lagging:
                cursor.lag()
            elif not cursor.filling:
                cursor.filling = True
                if at_once:
                    self._tasks.start(self._fill(cursor))
                else:
                    self._services.gaps.wait(partial(self._gap, cursor, cursor.delivered))
        elif cursor.phase is CursorPhase.LIVE and not cursor.synced:
            self._note_shown(cursor.chat_id, cursor.delivered)
            self.forget(cursor)
        elif cursor.phase is CursorPhase.LAGGING and not outbound.lagging:
            cursor.drained()  # a sync failed after the buffer had drained
            self.advance(cursor, at_once=True)

    def _gap(self, cursor: ChatCursor, delivered: int) -> None:
        """A moment ago something was missing above `delivered`."""
        if not cursor.behind:
            cursor.filling = False
        elif cursor.delivered > delivered:
            # That gap closed by itself. What is missing now is younger, and may be on its way as well.
            self._services.gaps.wait(partial(self._gap, cursor, cursor.delivered))
        else:
            self._tasks.start(self._fill(cursor))

    async def _fill(self, cursor: ChatCursor) -> None:
        """Reads page after page until nothing is missing, or what is missing may arrive by itself."""
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
        """Reads one page and sends it, unless the client has begun a sync of its own meanwhile."""
        async with self._services.fill_slots:
            if not cursor.behind:
                return
            epoch = cursor.epoch
            try:
                page = await self._services.durability.read(
                    self._user_id,
                    cursor.chat_id,
                    after=cursor.delivered,
                    limit=limits.FILL_SLOTS_MAX,
                    timeout_s=limits.PERSIST_DEADLINE_S,
                )
            except NotAMember:
                if cursor.epoch == epoch:
                    self._removed(cursor)
                return
            except SeriatimError as error:
                self._services.observe.fill_failed(error.code)
                return
        if cursor.epoch == epoch and cursor.behind:
            self._services.observe.filled(len(page.messages))
            cursor.filled(_frames(page), page.through)
            self.advance(cursor)

    def _removed(self, cursor: ChatCursor) -> None:
        """The user is no member now, but may be again: a synced chat then goes on from where it stood, missing nothing.

        Forgetting would be a loss: the client counts the chat as synced and was not told otherwise.
        """
        if cursor.synced:
            cursor.stand_still()
        else:
            self.forget(cursor)

    # --- syncing and acknowledging ------------------------------------------------------------------------------------

    def begin_sync(self, chat_id: str) -> ChatCursor:
        """The chat's cursor, a new one if need be."""
        cursor = self._cursors.get(chat_id)
        if cursor is None:
            if len(self._cursors) >= limits.CHATS_PER_CONNECTION_MAX:
                raise ServerBusy("too many chats are open on this connection", retry_after_seconds=60)
            self._cursors[chat_id] = cursor = ChatCursor(chat_id)
        self._services.probe.watch(chat_id, self._watcher)
        self._shown.pop(chat_id, None)
        return cursor

    def sync_failed(self, cursor: ChatCursor, epoch: int, *, gone: bool) -> None:
        """`gone`: the user may not read this chat, so what an earlier sync promised is void too."""
        if not cursor.sync_failed(epoch):
            return
        if gone or cursor.phase is CursorPhase.UNSYNCED:
            self.forget(cursor)
        else:
            self.advance(cursor)

    def forget(self, cursor: ChatCursor) -> None:
        """No promise is kept about this chat any more, until the client syncs it again."""
        cursor.abandon()
        if self._cursors.get(cursor.chat_id) is cursor:
            del self._cursors[cursor.chat_id]
            self._services.probe.unwatch(cursor.chat_id, self._watcher)

    def received_through(self, chat_id: str, sequence: int) -> int:
        """How much of an ack counts; 0 for nothing. What still waits in the buffer was not received."""
        cursor = self._cursors.get(chat_id)
        if cursor is None:
            return 0
        clamped = cursor.clamp(sequence)
        floor = self._outbound.floor(chat_id)
        return clamped if floor is None else min(clamped, floor)

    def cursor(self, chat_id: str) -> ChatCursor | None:
        return self._cursors.get(chat_id)

    def hints(self) -> dict[str, int]:
        """Where to sync from, for each chat that is owed something."""
        hints = self._outbound.hints()
        for chat_id, cursor in self._cursors.items():
            if cursor.owes:
                hints.setdefault(chat_id, cursor.delivered)
        return hints

    def _note_shown(self, chat_id: str, sequence: int) -> None:
        if chat_id in self._shown or len(self._shown) < limits.CHATS_PER_CONNECTION_MAX:
            self._shown[chat_id] = max(sequence, self._shown.get(chat_id, 0))

    def forget_all(self) -> None:
        self._services.new_chats.unwatch(self._user_id, self)
        for cursor in list(self._cursors.values()):
            self.forget(cursor)


def _frames(page: PrefixPage) -> Iterator[tuple[int, bytes]]:
    prev_sequence = None
    for message in page.messages:
        yield message.sequence, encode(message_frame(message, prev_sequence))
        prev_sequence = message.sequence
