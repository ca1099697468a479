"""A store in which whole sends are one step: for engines that keep messages and events in one place of one process.

Optional. Where there is none, a send looks up, allocates, persists and publishes in turn, and may stop in between.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from seriatim.domain.errors import SeriatimError
from seriatim.ports.event_log import Event
from seriatim.ports.message_log import ChatCounter, Entry, Key


class AtomicTransaction(Protocol):
    """The rows as one step finds them, its own changes included. Nothing else is decided meanwhile.

    A row that cannot be read raises `RowUnreadable` where it is asked for, and nothing else of the step fails by it.
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


class AtomicStore(Protocol):
    def ask(
        self,
        take: Callable[[AtomicTransaction], None],
        answer: Callable[[SeriatimError | None], None],
        *,
        deadline: float,
    ) -> None:
        """Calls `take` once, soon: it reads and changes rows without waiting for anything. Then `answer`, once.

        None: all that the step saw and changed survives a crash, and its events can be read. An error: nothing was
        changed, or, with `OutcomeUnknown`, all of it or nothing, now or later. `take` is not called after `answer`,
        and neither from within. `answer` comes at the latest at `deadline` of the event loop's clock. If `take`
        raises, nothing was changed: one of our errors is answered as it is, any other as `InternalError`.
        """
        ...
