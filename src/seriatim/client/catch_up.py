"""Brings the chats of one connection up to date: at most five syncs at once, page after page, retried until answered.

Lives as long as its connection: which chats are synced is a fact about a connection, not about a device.
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
    """The sync of one chat on this connection."""

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
    def up_to_date(self) -> bool:
        """Nothing is known to be missing. A page may end below what was shown before: the store can lose slots."""
        return self.synced and self.phase is SyncPhase.IDLE and self.highest <= self.timeline.cursor


class CatchUp:
    """`floors`: per chat the `sync_from_sequence` of the last closing; a sync starts no higher."""

    def __init__(self, store: ClientStore, chance: RandomSource, floors: Mapping[str, int]) -> None:
        self._store = store
        self._chance = chance
        self._floors = dict(floors)
        self._chats: dict[str, ChatSync] = {}
        self._wanted: dict[str, None] = {}
        self._running = 0
        self._unsynced = 0
        self._requests = 0
        # Per chat: the request is unanswered, a pause ends, or an own message is still above a hole.
        self._timers: TimerQueue[str] = TimerQueue()

    # --- chats --------------------------------------------------------------------------------------------------------

    def chat(self, chat_id: str) -> ChatSync | None:
        return self._chats.get(chat_id)

    def add(self, chat_id: str) -> ChatSync:
        """A new chat is synced at once; a known one stays as it is."""
        chat = self._chats.get(chat_id)
        if chat is None:
            chat = self._chats[chat_id] = ChatSync(Timeline(chat_id, self._store))
            self._unsynced += 1
            self.want(chat)
        return chat

    def drop(self, chat: ChatSync) -> None:
        self._leave_phase(chat)
        self._timers.cancel(chat.timeline.chat_id)
        del self._chats[chat.timeline.chat_id]
        self._unsynced -= not chat.synced

    @property
    def complete(self) -> bool:
        """Every chat was synced to its end on this connection."""
        return self._unsynced == 0

    # --- requests -----------------------------------------------------------------------------------------------------

    def want(self, chat: ChatSync) -> None:
        """Sync from the cursor as soon as there is room. A sync that runs or waits already is enough for now."""
        if chat.phase is SyncPhase.IDLE:
            self._queue(chat)

    def want_all(self) -> None:
        for chat in self._chats.values():
            self.want(chat)

    def missed(self, chat: ChatSync, sequence: int) -> None:
        """A message could not be placed. It is not kept: what was shown is in the page of a later request."""
        chat.behind = max(chat.behind, sequence)
        chat.highest = max(chat.highest, sequence)
        self.want(chat)

    def sync_if_hole_stays(self, chat: ChatSync, now: float) -> None:
        """An own message is stored above a hole: usually a push fills it soon; otherwise a sync does."""
        chat_id = chat.timeline.chat_id
        if chat.phase is SyncPhase.IDLE and chat_id not in self._timers:
            self._timers.set(chat_id, now + limits.CLIENT_OWN_SETTLE_S)

    def start(self, now: float) -> list[SyncRequest]:
        """The requests there is room for."""
        requests: list[SyncRequest] = []
        while self._wanted and self._running < limits.SYNCS_IN_PROGRESS_MAX:
            chat = self._chats[next(iter(self._wanted))]
            self._leave_phase(chat)
            cursor = chat.timeline.cursor
            position = min(cursor, self._floors.pop(chat.timeline.chat_id, cursor))
            requests.append(self._request(chat, position, now))
        return requests

    # --- answers ------------------------------------------------------------------------------------------------------

    def running(self, chat_id: str, request_id: str | object) -> ChatSync | None:
        """The chat whose request this answers. Without an id the chat alone decides: some servers do not echo it."""
        chat = self._chats.get(chat_id)
        if chat is None or chat.phase is not SyncPhase.RUNNING:
            return None
        return chat if request_id is UNSET or request_id == chat.request_id else None

    def page(self, chat: ChatSync, batch: MessageBatch, now: float) -> tuple[list[Message], list[SyncRequest]]:
        """What is new in the page, and the request for the next one."""
        end = max([chat.position, *[item.sequence for item in batch.messages]])
        if batch.has_more and batch.next_sequence is not None:
            end = max(end, batch.next_sequence - 1)
        fresh = chat.timeline.page([as_message(item) for item in batch.messages], end)
        chat.failures = 0
        self._leave_phase(chat)
        # A page that claims more but does not advance would repeat for ever; the periodic sync asks again later.
        if batch.has_more and end > chat.position:
            return fresh, [self._request(chat, end, now)]
        self._timers.cancel(chat.timeline.chat_id)
        self._unsynced -= not chat.synced
        chat.synced = True
        if chat.behind > chat.timeline.cursor:
            self.want(chat)
        elif chat.timeline.has_hole:  # its ack arrived after the page was read
            self.sync_if_hole_stays(chat, now)
        return fresh, []

    def failed(self, chat: ChatSync, hint_s: float, now: float) -> None:
        self._leave_phase(chat)
        chat.phase = SyncPhase.PAUSED
        self._timers.set(chat.timeline.chat_id, now + client_backoff_s(chat.failures, hint_s, self._chance))
        chat.failures += 1

    # --- time ---------------------------------------------------------------------------------------------------------

    def timer(self, now: float) -> None:
        for chat_id in self._timers.due(now):
            chat = self._chats[chat_id]
            if chat.phase in (SyncPhase.RUNNING, SyncPhase.PAUSED):
                self._leave_phase(chat)
                self._queue(chat)
            elif chat.timeline.has_hole:
                self.want(chat)

    def next_timer(self) -> float | None:
        return self._timers.next()

    # --- phases -------------------------------------------------------------------------------------------------------

    def _request(self, chat: ChatSync, position: int, now: float) -> SyncRequest:
        chat_id = chat.timeline.chat_id
        self._requests += 1
        self._running += 1
        chat.phase = SyncPhase.RUNNING
        chat.request_id = f"sync-{self._requests}"
        chat.position = position
        chat.behind = 0
        self._timers.set(chat_id, now + limits.CLIENT_SYNC_UNANSWERED_S)
        return SyncRequest(
            chat_id=chat_id,
            last_acked_sequence=position,
            limit=limits.CLIENT_SYNC_SLOTS,
            request_id=chat.request_id,
        )

    def _queue(self, chat: ChatSync) -> None:
        chat.phase = SyncPhase.WANTED
        self._wanted[chat.timeline.chat_id] = None

    def _leave_phase(self, chat: ChatSync) -> None:
        if chat.phase is SyncPhase.RUNNING:
            self._running -= 1
        self._wanted.pop(chat.timeline.chat_id, None)
        chat.phase = SyncPhase.IDLE
