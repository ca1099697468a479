"""A store that commits whole sends atomically: for engines that keep messages and events in one place of one process.

Optional. Where there is none, a send looks up, allocates, persists and publishes in turn, and may stop in between.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from seriatim.domain.errors import SeriatimError
from seriatim.ports.event_log import Event
from seriatim.ports.message_log import ChatCounter, Entry, Key


class AtomicTransaction(Protocol):
    """The rows as one transaction finds them, its own changes included. Nothing else is decided meanwhile.

    A row that cannot be read raises `RowUnreadable` where it is asked for, and fails nothing else of the transaction.
    """

    def counter(self, chat_id: str) -> ChatCounter | None:
        """None: there is no counter, or slots above it are filled, so nothing may be added in this way."""
        ...

    def expect(self, keys: Sequence[tuple[str, str]]) -> None:
        """These (chat, client_message_id) will be asked for: an engine may fetch them together."""
        ...

    def key(self, chat_id: str, client_message_id: str) -> Key | None:
        """Present, if expired too."""
        ...

    def is_member(self, chat_id: str, user_id: str) -> bool: ...

    def add(self, entry: Entry, event: Event) -> None:
        """Stores a message and its key, and appends its event to the topic of messages. Its slot is above the counter,
        so it is free.
        """
        ...

    def put_counter(self, chat_id: str, counter: ChatCounter) -> None:
        """Writes the counter row."""
        ...

    def commit(self, done: Callable[[SeriatimError | None], None]) -> None:
        """Ends the transaction. Calls `done` once, never from within, at the latest at the deadline.

        None: all that the transaction saw and changed survives a crash, and its events can be read. An error: nothing
        was changed, or, with `OutcomeUnknown`, all of it or nothing, now or later.
        """
        ...


class AtomicStore(Protocol):
    def when_ready(self, begin: Callable[[AtomicTransaction | SeriatimError], None], *, deadline: float) -> None:
        """Calls `begin` once, soon, and never from within: with a transaction, or with the error why there is none.

        `begin` reads and changes rows by plain calls, and commits before it returns. A transaction without a `commit`
        has changed nothing. If `begin` raises, the loop's exception handler gets the error, and other transactions go
        on. `deadline`, of the event loop's clock, holds for `begin` and for `done`: a transaction that has not begun
        by then never begins.
        """
        ...
