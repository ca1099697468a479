"""One message by its id or sequence, and what stands around a sequence (docs/spec/rest.md#one-message).

No index leads from an id to its place. But an id holds the time of its birth, and the order of a chat is nearly the
order of time: so the place is found by halving, and the message by looking at everything of about that time.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Annotated

import msgspec
from msgspec import Meta

from seriatim.api.access import Door
from seriatim.api.core.route import Answer, Call, Nothing, Route
from seriatim.api.display_names import Names
from seriatim.api.history_reader import END, Reading
from seriatim.api.message_views import MessageView, fitting, message_views
from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, NotFound
from seriatim.domain.ids import MESSAGE, ulid_ms
from seriatim.domain.message import Message
from seriatim.domain.times import milliseconds


class AroundQuery(msgspec.Struct, frozen=True, kw_only=True):
    context: Annotated[
        int, Meta(ge=1, le=limits.CONTEXT_ITEMS_MAX, description="How many messages on each side, at most.")
    ] = limits.CONTEXT_ITEMS_DEFAULT


class Around(msgspec.Struct, frozen=True, kw_only=True):
    target_sequence: int
    target_found: bool
    messages: list[MessageView]
    has_more_before: bool
    has_more_after: bool


class FindMessage:
    def __init__(self, *, reading: Reading, names: Names, door: Door) -> None:
        self._reading = reading
        self._names = names
        self._door = door

    async def one(self, call: Call[Nothing, Nothing]) -> Answer:
        chat_id, caller, wanted = call.path["chat_id"], call.caller_id, call.path["message_id"]
        sequence = sequence_of(wanted)
        born_ms = ulid_ms(wanted.removeprefix(MESSAGE)) if wanted.startswith(MESSAGE) else None
        found = None
        async with self._door.opened(chat_id, caller):
            if sequence is not None:
                found = await self._reading.at(caller, chat_id, sequence)
            elif born_ms is not None:
                found = await self._by_id(caller, chat_id, wanted, born_ms)
        if found is None:
            raise NotFound("there is no such message in this chat")
        [view] = await message_views([found], self._names)
        return Answer(data=view)

    async def around(self, call: Call[Nothing, AroundQuery]) -> Answer:
        chat_id, caller, context = call.path["chat_id"], call.caller_id, call.query.context
        sequence = sequence_of(call.path["sequence"])
        async with self._door.opened(chat_id, caller):
            if sequence is None:
                raise NotFound("a sequence is a number from 1 on")
            down = await self._reading.back(caller, chat_id, before=sequence + 1, after=0, limit=context + 1)
            # From a message on, not from the number asked for: that one may lie above a hole.
            start = down.messages[0].sequence if down.messages else 0
            up = await self._reading.forth(caller, chat_id, after=start, before=END, limit=context)
        target_found = start == sequence
        below = down.messages[1:] if target_found else down.messages[:context]
        chosen = [*down.messages[: int(target_found)], *_in_turns(up.messages, below)]
        views = fitting(await message_views(chosen, self._names))
        shown_below = sum(view.sequence < sequence for view in views)
        shown_above = sum(view.sequence > sequence for view in views)
        return Answer(
            data=Around(
                target_sequence=sequence,
                target_found=target_found,
                messages=sorted(views, key=lambda view: view.sequence),
                has_more_before=down.more or shown_below < len(down.messages) - int(target_found),
                has_more_after=up.more or shown_above < len(up.messages),
            )
        )

    async def _by_id(self, caller: str, chat_id: str, message_id: str, born_ms: int) -> Message | None:
        spread_ms = int(limits.FIND_SPREAD_S * 1000)
        at = await self._last_before(caller, chat_id, born_ms - spread_ms)
        for _ in range(limits.FIND_PAGES_MAX):
            piece = await self._reading.forth(caller, chat_id, after=at, before=END, limit=limits.SYNC_SLOTS_MAX - 1)
            for message in piece.messages:
                if message.message_id == message_id:
                    return message
                if milliseconds(message.created_at) > born_ms + spread_ms:
                    return None
            if not piece.more:
                return None
            at = piece.at
        return None

    async def _last_before(self, caller: str, chat_id: str, time_ms: int) -> int:
        """A sequence with older messages up to it, and none of them after it by more than clocks differ."""
        newest = await self._reading.newest(caller, chat_id)
        low, high = 0, newest.sequence if newest else 0
        while low < high:
            middle = (low + high) // 2
            piece = await self._reading.forth(caller, chat_id, after=middle, before=END, limit=1)
            if piece.messages and milliseconds(piece.messages[0].created_at) < time_ms:
                low = piece.messages[0].sequence
            else:
                high = middle
        return low


def sequence_of(text: str) -> int | None:
    """A sequence as a path has it: decimal digits."""
    if not (text.isascii() and text.isdigit()):
        return None
    value = int(text)
    return value if 1 <= value <= limits.SEQUENCE_MAX else None


def _in_turns(one: Sequence[Message], other: Sequence[Message]) -> Iterator[Message]:
    """What is nearest comes first, so that whatever has to be left out is farthest away."""
    for pair in zip_longest(one, other):
        yield from (message for message in pair if message is not None)


def routes(find: FindMessage) -> Sequence[Route]:
    outside = (NotAMember, NotFound)
    return [
        Route(
            method="GET",
            path="/chats/{chat_id}/messages/{message_id}",
            handler=find.one,
            summary="One message",
            description="By its id, or by its sequence.",
            tag="messages",
            answers={200: MessageView},
            errors=outside,
        ),
        Route(
            method="GET",
            path="/chats/{chat_id}/messages/around/{sequence}",
            handler=find.around,
            summary="What stands around a message",
            tag="messages",
            query=AroundQuery,
            answers={200: Around},
            errors=outside,
        ),
    ]
