"""One message by its id or sequence, and the messages around a sequence (docs/spec/rest.md#one-message).

No index leads from an id to its place. But an id holds the time when it was made, and the order of a chat is nearly the
order of time: so the place is found by bisection, and the message among those of about that time.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Annotated

import msgspec
from msgspec import Meta

from seriatim.api.access import ChatAccess
from seriatim.api.core.route import ApiRequest, ApiResponse, Nothing, Route
from seriatim.api.display_names import DisplayNames
from seriatim.api.history_reader import END, HistoryReader
from seriatim.api.message_views import MessageView, message_views, within_size_limit
from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, NotFound
from seriatim.domain.ids import MESSAGE, ulid_ms
from seriatim.domain.message import Message
from seriatim.domain.times import milliseconds


class AroundQuery(msgspec.Struct, frozen=True, kw_only=True):
    context: Annotated[
        int, Meta(ge=1, le=limits.CONTEXT_ITEMS_MAX, description="How many messages on each side, at most.")
    ] = limits.CONTEXT_ITEMS_DEFAULT


class MessagesAround(msgspec.Struct, frozen=True, kw_only=True):
    target_sequence: int
    target_found: bool
    messages: list[MessageView]
    has_more_before: bool
    has_more_after: bool


class MessageLookupResource:
    def __init__(self, *, history: HistoryReader, names: DisplayNames, access: ChatAccess) -> None:
        self._history = history
        self._names = names
        self._access = access

    async def one(self, request: ApiRequest[Nothing, Nothing]) -> ApiResponse:
        chat_id, caller, wanted = request.path["chat_id"], request.caller_id, request.path["message_id"]
        sequence = sequence_of(wanted)
        born_ms = ulid_ms(wanted.removeprefix(MESSAGE)) if wanted.startswith(MESSAGE) else None
        found = None
        async with self._access.require_member(chat_id, caller):
            if sequence is not None:
                found = await self._history.at(caller, chat_id, sequence)
            elif born_ms is not None:
                found = await self._by_id(caller, chat_id, wanted, born_ms)
        if found is None:
            raise NotFound("there is no such message in this chat")
        [view] = await message_views([found], self._names)
        return ApiResponse(data=view)

    async def around(self, request: ApiRequest[Nothing, AroundQuery]) -> ApiResponse:
        chat_id, caller, context = request.path["chat_id"], request.caller_id, request.query.context
        sequence = sequence_of(request.path["sequence"])
        async with self._access.require_member(chat_id, caller):
            if sequence is None:
                raise NotFound("a sequence is a number from 1 on")
            down = await self._history.before(caller, chat_id, before=sequence + 1, after=0, limit=context + 1)
            # From a message on, not from the number asked for: that one may lie above a hole.
            start = down.messages[0].sequence if down.messages else 0
            up = await self._history.after(caller, chat_id, after=start, before=END, limit=context)
        target_found = start == sequence
        below = down.messages[1:] if target_found else down.messages[:context]
        chosen = [*down.messages[: int(target_found)], *_in_turns(up.messages, below)]
        views = within_size_limit(await message_views(chosen, self._names))
        shown_below = sum(view.sequence < sequence for view in views)
        shown_above = sum(view.sequence > sequence for view in views)
        return ApiResponse(
            data=MessagesAround(
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
            found = await self._history.after(caller, chat_id, after=at, before=END, limit=limits.SYNC_SLOTS_MAX - 1)
            for message in found.messages:
                if message.message_id == message_id:
                    return message
                if milliseconds(message.created_at) > born_ms + spread_ms:
                    return None
            if not found.more:
                return None
            at = found.at
        return None

    async def _last_before(self, caller: str, chat_id: str, time_ms: int) -> int:
        """A sequence with older messages up to it, and none of them after it by more than clocks differ."""
        newest = await self._history.newest(caller, chat_id)
        low, high = 0, newest.sequence if newest else 0
        while low < high:
            middle = (low + high) // 2
            found = await self._history.after(caller, chat_id, after=middle, before=END, limit=1)
            if found.messages and milliseconds(found.messages[0].created_at) < time_ms:
                low = found.messages[0].sequence
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


def routes(find: MessageLookupResource) -> Sequence[Route]:
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
            summary="The messages around a sequence",
            tag="messages",
            query=AroundQuery,
            answers={200: MessagesAround},
            errors=outside,
        ),
    ]
