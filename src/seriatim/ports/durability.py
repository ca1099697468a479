"""What a gateway asks of the durability plane: a call in one process, a stream between processes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from seriatim.domain.errors import SeriatimError
from seriatim.domain.message import Draft, Message, Receipt

Answer = Callable[[Receipt | SeriatimError], None]


class PrefixPage(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the stable prefix: nothing will ever appear at or below `through` that is not there already.

    `has_more`: more of the stable prefix lies above `through`.
    """

    messages: tuple[Message, ...]
    through: int
    has_more: bool


class BackPage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages in descending order, and whether there are more below the last of them."""

    messages: tuple[Message, ...]
    has_more: bool


class Durability(Protocol):
    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        """Calls `answer` exactly once, at the latest at `deadline` (the caller's monotonic clock), never from within.

        A `Receipt` means stored and published: nothing below can undo it. Drafts of one chat submitted one after
        another are sequenced in that order, unless the earlier one fails.
        """
        ...

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        """The stable prefix above `after`, for members only, membership checked after the read.

        An `after` that was never given out, such as one beyond the end of the chat, is answered with an empty page
        whose `through` lies below it and above no hole: go on from there.
        """
        ...

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        """Raises the user's watermark, bounded by the newest stored message; for members only; never lowers it."""
        ...

    async def heads(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, int]:
        """Up to where each chat is published; may lag by seconds. Unknown chats are left out."""
        ...

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        """The chats that each user joined at or after the time given for them; users without any are left out.

        May lag behind the memberships by seconds.
        """
        ...


class History(Protocol):
    """What the REST edge asks of the durability plane and a gateway does not."""

    async def read_back(
        self, user_id: str, chat_id: str, *, before: int, after: int, limit: int, timeout_s: float
    ) -> BackPage:
        """The newest messages of the stable prefix between the two, both left out, for members only.

        Whatever was acknowledged before the call is part of the prefix. Membership is checked after the read.
        """
        ...
