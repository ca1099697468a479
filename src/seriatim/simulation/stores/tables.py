"""The tables of the memory engine. They outlive the processes that hold handles on them, as a real store would.

Nothing here waits and nothing checks a condition: a handle does both inside one `apply`, which makes it atomic.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

import msgspec

from seriatim.domain import limits
from seriatim.domain.chat import Chat, Membership, Role
from seriatim.domain.errors import RowUnreadable
from seriatim.domain.message import Message, Slot
from seriatim.ports.message_log import ChatCounter, Entry, Key, SlotPage
from seriatim.simulation.stores.account_tables import AccountTables


class StoreObserver:
    """Called for every write in the order of the store. Does nothing; override what you want to see."""

    def slot_filled(self, slot: Slot) -> None:
        return

    def allocated(self, chat_id: str, first: int, last: int) -> None:
        return

    def counter_changed(self, chat_id: str, counter: ChatCounter | None) -> None:
        """The counter row as it is now, after an allocation too; None once it is lost."""

    def watermark(self, user_id: str, chat_id: str, sequence: int) -> None:
        return

    def membership_changed(self, chat_id: str, user_id: str, role: Role | None, version: int) -> None:
        """The user's role as of `version`, None for a user who is no longer a member."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """The audit fields of a counter row that was repaired."""

    chat_id: str
    recovered_at_ms: int
    recovered_from: int


class TokenUse(msgspec.Struct, frozen=True):
    """What a request token was used for, so that a repeat is recognised and another use of it is refused."""

    entries: tuple[Entry, ...]
    senders: tuple[str, ...]
    written: bool
    at_s: int


class MemoryStore:
    """All rows of one store. Handles on it are `MemoryMessageLog`, `MemoryCatalog`, `MemoryAccounts` and so on."""

    def __init__(self, observer: StoreObserver | None = None) -> None:
        self.observer = observer or StoreObserver()
        self.chats: dict[str, Chat] = {}
        self.pairs: dict[str, str] = {}
        self.counters: dict[str, ChatCounter] = {}
        self.unreadable: dict[str, None] = {}  # chats whose counter row and keys cannot be read
        self.recoveries: list[Recovery] = []
        self.keys: dict[tuple[str, str], Key] = {}
        self.watermarks: dict[tuple[str, str], int] = {}
        self.watermarks_since_ms: dict[tuple[str, str], int] = {}
        self.commits: dict[str, TokenUse] = {}
        self.dirty_index: dict[str, int] = {}
        self.accounts = AccountTables()
        self._members: dict[str, dict[str, Membership]] = {}
        self._slots: dict[str, ChatSlots] = {}
        self._chats_of: dict[str, dict[str, None]] = {}

    def slots(self, chat_id: str) -> "ChatSlots":
        found = self._slots.get(chat_id)
        if found is None:
            found = self._slots[chat_id] = ChatSlots()
        return found

    def fill(self, slot: Slot) -> None:
        self.slots(slot.chat_id).put(slot)
        self.observer.slot_filled(slot)

    def counter(self, chat_id: str) -> ChatCounter | None:
        self._check_readable(chat_id)
        return self.counters.get(chat_id)

    def key(self, chat_id: str, client_message_id: str) -> Key | None:
        self._check_readable(chat_id)
        return self.keys.get((chat_id, client_message_id))

    def _check_readable(self, chat_id: str) -> None:
        if chat_id in self.unreadable:
            raise RowUnreadable(f"a row of {chat_id} is damaged")

    def put_counter(self, chat_id: str, counter: ChatCounter) -> None:
        self.counters[chat_id] = counter
        self.observer.counter_changed(chat_id, counter)

    def put_watermark(self, user_id: str, chat_id: str, sequence: int, at_ms: int = 0) -> None:
        self.watermarks[user_id, chat_id] = sequence
        self.watermarks_since_ms[user_id, chat_id] = at_ms
        self.observer.watermark(user_id, chat_id, sequence)

    def members(self, chat_id: str) -> dict[str, Membership]:
        return self._members.get(chat_id, {})

    def put_member(self, row: Membership, version: int) -> None:
        self._members.setdefault(row.chat_id, {})[row.user_id] = row
        self.observer.membership_changed(row.chat_id, row.user_id, row.role, version)

    def note_member(self, row: Membership) -> None:
        """Replaces a member's own settings: not a change of membership, so the observer is not called."""
        self._members[row.chat_id][row.user_id] = row

    def drop_member(self, chat_id: str, user_id: str, version: int) -> None:
        del self._members[chat_id][user_id]
        self.observer.membership_changed(chat_id, user_id, None, version)

    def remember_commit(self, token: str, commit: TokenUse) -> None:
        """Tokens are kept in the order of their use and forgotten in the same order."""
        while self.commits:
            oldest = next(iter(self.commits))
            if self.commits[oldest].at_s > commit.at_s - limits.TOKEN_LIFETIME_S:
                break
            del self.commits[oldest]
        self.commits[token] = commit

    def index_dirty(self, chat_id: str) -> None:
        """Lets the dirty index catch up with the counter row. Called at a write's `finish`, so the index lags."""
        counter = self.counters.get(chat_id)
        if counter is None or counter.dirty_at_ms is None:
            self.dirty_index.pop(chat_id, None)
        else:
            self.dirty_index[chat_id] = counter.dirty_at_ms

    def chats_of(self, user_id: str) -> list[str]:
        return sorted(self._chats_of.get(user_id, ()))

    def memberships_of(self, user_id: str) -> list[Membership]:
        """By the same index, which lags; a membership that has ended since is left out."""
        rows = [self.members(chat_id).get(user_id) for chat_id in self.chats_of(user_id)]
        return [row for row in rows if row is not None]

    def index_member(self, chat_id: str, user_id: str) -> None:
        """Lets the index of a user's chats catch up with the membership row, likewise at `finish`."""
        if user_id in self.members(chat_id):
            self._chats_of.setdefault(user_id, {})[chat_id] = None
        else:
            self._chats_of.get(user_id, {}).pop(chat_id, None)

    def lose_counter(self, chat_id: str) -> None:
        """For tests and the simulator: the counter row is gone, as after a fault or a wrong restore."""
        if self.counters.pop(chat_id, None) is not None:
            self.index_dirty(chat_id)
            self.observer.counter_changed(chat_id, None)


class ChatSlots:
    """One chat's slots. Conditions see a commit at once (`holder`), queries may see part of it (the rest)."""

    def __init__(self) -> None:
        self._at: dict[int, Slot] = {}
        self._order: list[int] = []
        self._hidden: set[int] = set()

    def holder(self, sequence: int) -> Slot | None:
        return self._at.get(sequence)

    def put(self, slot: Slot) -> None:
        if slot.sequence not in self._at:
            if not self._order or slot.sequence > self._order[-1]:
                self._order.append(slot.sequence)
            else:
                insort(self._order, slot.sequence)
        self._at[slot.sequence] = slot

    def hide(self, sequences: Iterable[int]) -> None:
        self._hidden.update(sequences)

    def show(self, sequences: Iterable[int]) -> None:
        self._hidden.difference_update(sequences)

    def above(self, after: int, limit: int) -> SlotPage:
        return self._page(range(bisect_right(self._order, after), len(self._order)), limit)

    def below(self, before: int, limit: int) -> SlotPage:
        return self._page(range(bisect_left(self._order, before) - 1, -1, -1), limit)

    def _page(self, positions: range, limit: int) -> SlotPage:
        """Stops at the limit, or when the page is heavy enough; `more` is true then."""
        found: list[Slot] = []
        weight = 0
        for position in positions:
            sequence = self._order[position]
            if sequence in self._hidden:
                continue
            slot = self._at[sequence]
            weight += _weight(slot)
            found.append(slot)
            if len(found) == limit or weight >= limits.READ_BYTES_MAX:
                return SlotPage(tuple(found), more=True)
        return SlotPage(tuple(found), more=False)

    def newest(self, *, at_most: int | None = None, messages_only: bool) -> int:
        end = len(self._order) if at_most is None else bisect_right(self._order, at_most)
        for position in range(end - 1, -1, -1):
            sequence = self._order[position]
            if sequence in self._hidden or (messages_only and not isinstance(self._at[sequence], Message)):
                continue
            return sequence
        return 0


def _weight(slot: Slot) -> int:
    """About the bytes of a row; ids and times are a few hundred, and characters count as bytes."""
    return 300 + len(slot.content) if isinstance(slot, Message) else 100
