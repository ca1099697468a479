"""A chat's history over REST, page by page, newest or oldest first (docs/spec/rest.md#history).

A cursor carries direction and bounds, so that a walk needs nothing else to go on, and cannot change its mind.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from seriatim.api.access import Door
from seriatim.api.core.cursor import Cursors
from seriatim.api.core.fields import PageCursor, PageLimit, SequenceBound
from seriatim.api.core.route import Answer, Call, Nothing, Pagination, Route
from seriatim.api.display_names import Names
from seriatim.api.history_reader import END, Piece, Reading
from seriatim.api.message_views import MessageView, fitting, message_views
from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, NotFound, ValidationFailed


class Direction(StrEnum):
    BACKWARD = "backward"
    FORWARD = "forward"


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: PageLimit = limits.HISTORY_ITEMS_DEFAULT
    direction: Annotated[Direction, Meta(description="Backward: newest first. With a cursor, the cursor's.")] = (
        Direction.BACKWARD
    )
    before_sequence: Annotated[SequenceBound | None, Meta(description="Only below this. Not with a cursor.")] = None
    after_sequence: Annotated[SequenceBound | None, Meta(description="Only above this. Not with a cursor.")] = None
    cursor: PageCursor | None = None


class HistoryPlace(msgspec.Struct, frozen=True):
    """Where a walk is: between `low` and `high`, both left out, and beyond `at`, which was the last it passed."""

    direction: Direction
    low: int
    high: int
    at: int

    def moved(self, at: int) -> "HistoryPlace":
        return msgspec.structs.replace(self, at=at)

    def turned(self) -> "HistoryPlace":
        """The other way from here: begins with what the walk showed last before it came here."""
        if self.direction is Direction.BACKWARD:
            return HistoryPlace(Direction.FORWARD, self.low, self.high, self.at - 1)
        return HistoryPlace(Direction.BACKWARD, self.low, self.high, self.at + 1)


class Messages:
    def __init__(self, *, reading: Reading, names: Names, door: Door, cursors: Cursors) -> None:
        self._reading = reading
        self._names = names
        self._door = door
        self._cursors = cursors

    async def page(self, call: Call[Nothing, HistoryQuery]) -> Answer:
        chat_id, caller = call.path["chat_id"], call.caller_id
        scope = f"{caller}#{chat_id}"
        place = check_place(call.query, call.query_given, scope, self._cursors)
        first = call.query.cursor is None
        async with self._door.opened(chat_id, caller):
            piece = await self._piece(chat_id, caller, place, call.query.limit, first)
        views = await message_views(piece.messages, self._names)
        shown = fitting(views)
        cut = len(shown) < len(views)
        onward = place.moved(shown[-1].sequence if cut else piece.at)
        more = cut or piece.more
        return Answer(
            data=shown,
            pagination=Pagination(
                has_more=more,
                next_cursor=self._cursors.make(_ENDPOINT, scope, onward) if more else None,
                prev_cursor=None if first else self._cursors.make(_ENDPOINT, scope, place.turned()),
            ),
        )

    async def _piece(self, chat_id: str, caller: str, place: HistoryPlace, limit: int, first: bool) -> Piece:
        if place.direction is Direction.BACKWARD:
            return await self._reading.back(caller, chat_id, before=place.at, after=place.low, limit=limit)
        if first and place.at > 0:
            # A number of the client's own may lie above a hole; if anything stable lies above it, it does not.
            above = await self._reading.back(caller, chat_id, before=END, after=place.at, limit=1)
            if not above.messages:
                return Piece(messages=(), more=False, at=place.at)
        return await self._reading.forth(caller, chat_id, after=place.at, before=place.high, limit=limit)


_ENDPOINT = "messages"


def check_place(query: HistoryQuery, given: frozenset[str], scope: str, cursors: Cursors) -> HistoryPlace:
    if query.cursor is None:
        low = query.after_sequence or 0
        high = END if query.before_sequence is None else query.before_sequence
        return HistoryPlace(query.direction, low, high, high if query.direction is Direction.BACKWARD else low)
    for field, value in (("before_sequence", query.before_sequence), ("after_sequence", query.after_sequence)):
        if value is not None:
            raise ValidationFailed("a cursor has its own bounds; leave this out", field=field, field_code="NOT_ALLOWED")
    place = cursors.read(query.cursor, _ENDPOINT, scope, HistoryPlace)
    if "direction" in given and query.direction is not place.direction:
        raise ValidationFailed("the cursor goes the other way", field="direction", field_code="MISMATCH")
    return place


def routes(messages: Messages) -> Sequence[Route]:
    return [
        Route(
            method="GET",
            path="/chats/{chat_id}/messages",
            handler=messages.page,
            summary="The history of a chat",
            description="Newest first, unless asked otherwise. Sequences that are missing hold no message.",
            tag="messages",
            query=HistoryQuery,
            answers={200: list[MessageView]},
            errors=(NotAMember, NotFound),
            paged=True,
        )
    ]
