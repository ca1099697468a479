"""A chat's history over REST, page by page, newest or oldest first (docs/spec/rest.md#history).

A cursor carries direction and bounds, so that a walk needs nothing else to go on, and cannot change its mind.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from seriatim.api.access import ChatAccess
from seriatim.api.core.cursor import CursorCodec
from seriatim.api.core.fields import PageCursor, PageLimit, SequenceBound
from seriatim.api.core.route import ApiRequest, ApiResponse, Nothing, Pagination, Route
from seriatim.api.display_names import DisplayNames
from seriatim.api.history_reader import END, HistoryReader, HistorySlice
from seriatim.api.message_views import MessageView, message_views, within_size_limit
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


class HistoryCursor(msgspec.Struct, frozen=True):
    """Where a walk is: between `low` and `high`, both left out, and beyond `at`, which was the last it passed."""

    direction: Direction
    low: int
    high: int
    at: int

    def moved(self, at: int) -> "HistoryCursor":
        return msgspec.structs.replace(self, at=at)

    def turned(self) -> "HistoryCursor":
        """The other way from here: begins with what the walk showed last before it came here."""
        if self.direction is Direction.BACKWARD:
            return HistoryCursor(Direction.FORWARD, self.low, self.high, self.at - 1)
        return HistoryCursor(Direction.BACKWARD, self.low, self.high, self.at + 1)


class MessageResource:
    def __init__(
        self, *, history: HistoryReader, names: DisplayNames, access: ChatAccess, cursors: CursorCodec
    ) -> None:
        self._history = history
        self._names = names
        self._access = access
        self._cursors = cursors

    async def page(self, request: ApiRequest[Nothing, HistoryQuery]) -> ApiResponse:
        chat_id, caller = request.path["chat_id"], request.caller_id
        scope = f"{caller}#{chat_id}"
        place = check_place(request.query, request.query_given, scope, self._cursors)
        first = request.query.cursor is None
        async with self._access.require_member(chat_id, caller):
            found = await self._piece(chat_id, caller, place, request.query.limit, first)
        views = await message_views(found.messages, self._names)
        shown = within_size_limit(views)
        cut = len(shown) < len(views)
        onward = place.moved(shown[-1].sequence if cut else found.at)
        more = cut or found.more
        return ApiResponse(
            data=shown,
            pagination=Pagination(
                has_more=more,
                next_cursor=self._cursors.encode(_ENDPOINT, scope, onward) if more else None,
                prev_cursor=None if first else self._cursors.encode(_ENDPOINT, scope, place.turned()),
            ),
        )

    async def _piece(self, chat_id: str, caller: str, place: HistoryCursor, limit: int, first: bool) -> HistorySlice:
        if place.direction is Direction.BACKWARD:
            return await self._history.before(caller, chat_id, before=place.at, after=place.low, limit=limit)
        if first and place.at > 0:
            # A number of the client's own may lie above a hole; if anything stable lies above it, it does not.
            above = await self._history.before(caller, chat_id, before=END, after=place.at, limit=1)
            if not above.messages:
                return HistorySlice(messages=(), more=False, at=place.at)
        return await self._history.after(caller, chat_id, after=place.at, before=place.high, limit=limit)


_ENDPOINT = "messages"


def check_place(query: HistoryQuery, given: frozenset[str], scope: str, cursors: CursorCodec) -> HistoryCursor:
    if query.cursor is None:
        low = query.after_sequence or 0
        high = END if query.before_sequence is None else query.before_sequence
        return HistoryCursor(query.direction, low, high, high if query.direction is Direction.BACKWARD else low)
    for field, value in (("before_sequence", query.before_sequence), ("after_sequence", query.after_sequence)):
        if value is not None:
            raise ValidationFailed("a cursor has its own bounds; leave this out", field=field, field_code="NOT_ALLOWED")
    place = cursors.decode(query.cursor, _ENDPOINT, scope, HistoryCursor)
    if "direction" in given and query.direction is not place.direction:
        raise ValidationFailed("the cursor goes the other way", field="direction", field_code="MISMATCH")
    return place


def routes(messages: MessageResource) -> Sequence[Route]:
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
