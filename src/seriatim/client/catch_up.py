"""Brings the chats of one connection up to date: at most five syncs at once, page after page, retried until answered.

Lives as long as its connection. Which chats are synced is a fact about a connection, not about a device.
"""

from collections.abc import Mapping
from enum import Enum, auto

from msgspec import UNSET

from seriatim.client.store import ClientStore
from seriatim.client.timeline import Timeline, as_message
from seriatim.client.timers import TimerQueue
from seriatim.domain import limits
from seriatim.domain.backoff import RandomSource, client_backoff_s
from seriatim.domain.message import Message
from seriatim.protocol.frames import MessageBatch, SyncRequest


class SyncPhase(Enum):
    IDLE = auto()
    WANTED = auto()  # queued behind other syncs
    RUNNING = auto()  # a request is out
    PAUSED = auto()  # the last request failed


class ChatSync:
    """A chat as this connection sees it."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.synced = False  # once on this connection, to the end
        self.phase = SyncPhase.IDLE
        self.request_id = ""
        self.position = 0  # the running request asks for what lies above
        self.behind = 0  # the highest message that could not be placed since the running request left
        self.highest = 0  # the highest message that could not be placed
        self.failures = 0

    @property
    def in_step(self) -> bool:
        """Nothing is known to be missing. A page may end below what was shown before: the store can lose slots."""
        return self.synced and self.phase is SyncPhase.IDLE and self.highest <= self.timeline.cursor


class CatchUp:
    """`floors`: where the server said a chat's undelivered pushes begin; a sync starts no higher."""

    def __init__(self, store: ClientStore, chance: RandomSource, floors: Mapping[str, int]) -> None:
        self._store = store
        self._chance = chance
        self._floors = dict(floors)
        self._views: dict[str, ChatSync] = {}
        self._wanted: dict[str, None] = {}
        self._running = 0
        self._unsynced = 0
        self._requests = 0
        self._alarms: TimerQueue[str] = (
            TimerQueue()
        )  # per chat: unanswered, end of a pause, or an own message above a hole

    # --- chats --------------------------------------------------------------------------------------------------

    def view(self, chat_id: str) -> ChatSync | None:
        return self._views.get(chat_id)

    def add(self, chat_id: str) -> ChatSync:
        """A new chat is synced at once; a known one stays as it is."""
        view = self._views.get(chat_id)
        if view is None:
            view = self._views[chat_id] = ChatSync(Timeline(chat_id, self._store))
            self._unsynced += 1
            self.want(view)
        return view

    def drop(self, view: ChatSync) -> None:
        self._leave_phase(view)
        self._alarms.cancel(view.timeline.chat_id)
        del self._views[view.timeline.chat_id]
        self._unsynced -= not view.synced

    @property
    def complete(self) -> bool:
        """Every chat was synced to its end on this connection."""
        return self._unsynced == 0

    # --- asking -------------------------------------------------------------------------------------------------

    def want(self, view: ChatSync) -> None:
        """Sync from the cursor as soon as there is room. A sync that runs or waits already is enough for now."""
        if view.phase is SyncPhase.IDLE:
            self._queue(view)

    def want_all(self) -> None:
        for view in self._views.values():
            self.want(view)

    def missed(self, view: ChatSync, sequence: int) -> None:
        """A message could not be placed. It is not kept: what was shown is in the page of a later request."""
        view.behind = max(view.behind, sequence)
        view.highest = max(view.highest, sequence)
        self.want(view)

    def settle_soon(self, view: ChatSync, now: float) -> None:
        """An own message stands above a hole: usually a push on its way fills it, else a sync does."""
        chat_id = view.timeline.chat_id
        if view.phase is SyncPhase.IDLE and chat_id not in self._alarms:
            self._alarms.set(chat_id, now + limits.CLIENT_OWN_SETTLE_S)

    def start(self, now: float) -> list[SyncRequest]:
        """The requests there is room for."""
        requests: list[SyncRequest] = []
        while self._wanted and self._running < limits.SYNCS_IN_PROGRESS_MAX:
            view = self._views[next(iter(self._wanted))]
            self._leave_phase(view)
            cursor = view.timeline.cursor
            position = min(cursor, self._floors.pop(view.timeline.chat_id, cursor))
            requests.append(self._request(view, position, now))
        return requests

    # --- answers ------------------------------------------------------------------------------------------------

    def running(self, chat_id: str, request_id: str | object) -> ChatSync | None:
        """The chat whose request this answers. Without an id the chat alone decides: some servers do not echo it."""
        view = self._views.get(chat_id)
        if view is None or view.phase is not SyncPhase.RUNNING:
            return None
        return view if request_id is UNSET or request_id == view.request_id else None

    def page(self, view: ChatSync, batch: MessageBatch, now: float) -> tuple[list[Message], list[SyncRequest]]:
        """What is new in the page, and the request for the next one."""
        end = max([view.position, *[item.sequence for item in batch.messages]])
        if batch.has_more and batch.next_sequence is not None:
            end = max(end, batch.next_sequence - 1)
        fresh = view.timeline.page([as_message(item) for item in batch.messages], end)
        view.failures = 0
        self._leave_phase(view)
        # A page that claims more but does not advance would repeat for ever; the periodic sync asks again later.
        if batch.has_more and end > view.position:
            return fresh, [self._request(view, end, now)]
        self._alarms.cancel(view.timeline.chat_id)
        self._unsynced -= not view.synced
        view.synced = True
        if view.behind > view.timeline.cursor:
            self.want(view)
        elif view.timeline.waits:  # its ack arrived after the page was read
            self.settle_soon(view, now)
        return fresh, []

    def failed(self, view: ChatSync, hint_s: float, now: float) -> None:
        self._leave_phase(view)
        view.phase = SyncPhase.PAUSED
        self._alarms.set(view.timeline.chat_id, now + client_backoff_s(view.failures, hint_s, self._chance))
        view.failures += 1

    # --- time ---------------------------------------------------------------------------------------------------

    def timer(self, now: float) -> None:
        for chat_id in self._alarms.due(now):
            view = self._views[chat_id]
            if view.phase in (SyncPhase.RUNNING, SyncPhase.PAUSED):
                self._leave_phase(view)
                self._queue(view)
            elif view.timeline.waits:
                self.want(view)

    def next_timer(self) -> float | None:
        return self._alarms.next()

    # --- phases ---------------------------------------------------------------------------------------------------

    def _request(self, view: ChatSync, position: int, now: float) -> SyncRequest:
        chat_id = view.timeline.chat_id
        self._requests += 1
        self._running += 1
        view.phase = SyncPhase.RUNNING
        view.request_id = f"sync-{self._requests}"
        view.position = position
        view.behind = 0
        self._alarms.set(chat_id, now + limits.CLIENT_SYNC_UNANSWERED_S)
        return SyncRequest(
            chat_id=chat_id,
            last_acked_sequence=position,
            limit=limits.CLIENT_SYNC_SLOTS,
            request_id=view.request_id,
        )

    def _queue(self, view: ChatSync) -> None:
        view.phase = SyncPhase.WANTED
        self._wanted[view.timeline.chat_id] = None

    def _leave_phase(self, view: ChatSync) -> None:
        if view.phase is SyncPhase.RUNNING:
            self._running -= 1
        self._wanted.pop(view.timeline.chat_id, None)
        view.phase = SyncPhase.IDLE
