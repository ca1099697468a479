"""The caller's chats, newest activity first (docs/spec/rest.md#the-list-of-chats).

Best effort: a chat that wakes up moves to the front. No index is sorted by activity, so all of the caller's chats are
read, a few at a time, and sorted here.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from seriatim.api.chat_views import MyMembership
from seriatim.api.core.cursor import CursorCodec
from seriatim.api.core.fields import PageCursor, PageLimit, Time
from seriatim.api.core.pages import page_of
from seriatim.api.core.route import ApiRequest, ApiResponse, Nothing, Route
from seriatim.api.display_names import DisplayNames
from seriatim.api.history_reader import HistoryReader
from seriatim.concurrency.bounded_gather import bounded_gather
from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType, Membership
from seriatim.domain.errors import NotAMember, ValidationFailed
from seriatim.domain.message import Message
from seriatim.domain.times import milliseconds
from seriatim.ports.catalog import Catalog
from seriatim.ports.message_log import DeliveryState


class ChatsQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: PageLimit = limits.PAGE_ITEMS_DEFAULT
    cursor: PageCursor | None = None
    updated_since: Annotated[
        str | None,
        Meta(
            description="Only chats with activity at or after this time; ISO 8601 with an offset or Z.",
            extra_json_schema={"format": "date-time"},
        ),
    ] = None


class LastMessage(msgspec.Struct, frozen=True, kw_only=True):
    message_id: str
    sequence: int
    sender_id: str
    content_preview: Annotated[str, Meta(description=f"The first {limits.PREVIEW_CHARS_MAX} characters.")]
    created_at: Time


class OtherMember(msgspec.Struct, frozen=True, kw_only=True):
    user_id: str
    display_name: str | None


class ChatListItem(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    type: ChatType
    name: str | None
    created_at: Time
    updated_at: Time
    member_count: int
    my_membership: MyMembership
    last_message: LastMessage | None
    pending_ack_count: Annotated[
        int, Meta(ge=0, description="At most this many messages are not acknowledged; 0 once all are.")
    ]
    other_member: OtherMember | UnsetType = UNSET  # of a direct chat


class ChatListCursor(msgspec.Struct, frozen=True):
    """Where a page ended, and the filter it was made with: what a cursor remembers."""

    activity_ms: int
    chat_id: str
    since_ms: int | None
    back: bool


class ChatListResource:
    def __init__(
        self,
        *,
        catalog: Catalog,
        delivery: DeliveryState,
        history: HistoryReader,
        names: DisplayNames,
        cursors: CursorCodec,
    ) -> None:
        self._catalog = catalog
        self._delivery = delivery
        self._history = history
        self._names = names
        self._cursors = cursors

    async def page(self, request: ApiRequest[Nothing, ChatsQuery]) -> ApiResponse:
        caller = request.caller_id
        since_ms, place = check_query(request.query, caller, self._cursors)

        def cursor(entry: _ListedChat, back: bool) -> str:
            return self._cursors.encode(_ENDPOINT, caller, ChatListCursor(*_moment(entry), since_ms, back))

        entries = sorted(await self._entries(caller, since_ms), key=_key)
        page, pagination = page_of(
            entries,
            request.query.limit,
            key=_key,
            edge=None if place is None else (-place.activity_ms, place.chat_id),
            back=place is not None and place.back,
            cursor=cursor,
        )
        return ApiResponse(data=await self._lines(caller, page), pagination=pagination)

    async def _entries(self, caller: str, since_ms: int | None) -> list["_ListedChat"]:
        memberships = await self._catalog.memberships_of(caller, timeout_s=limits.API_TIMEOUT_S)
        found = await bounded_gather(self._entry, memberships, at_once=limits.ENRICH_IN_PROGRESS_MAX)
        entries = [entry for entry in found if entry is not None]
        return [entry for entry in entries if since_ms is None or entry.activity_ms >= since_ms]

    async def _entry(self, mine: Membership) -> "_ListedChat | None":
        """None for a chat that the caller has just left: the list of memberships lags, reading the chat does not."""
        try:
            last = await self._history.newest(mine.user_id, mine.chat_id)
        except NotAMember:
            return None
        chat = await self._catalog.chat(mine.chat_id, timeout_s=limits.API_TIMEOUT_S)
        if chat is None:
            return None
        times = [chat.updated_at] if last is None else [chat.updated_at, last.created_at]
        return _ListedChat(chat, mine, last, max(milliseconds(time) for time in times))

    async def _lines(self, caller: str, page: Sequence["_ListedChat"]) -> list[ChatListItem]:
        """What only the shown ones need."""
        pairs = [(caller, entry.chat.chat_id) for entry in page]
        marks = await self._delivery.watermarks(pairs, timeout_s=limits.API_TIMEOUT_S) if pairs else {}
        acked = {chat_id: mark.sequence for (_, chat_id), mark in marks.items()}
        direct = [entry.chat.chat_id for entry in page if entry.chat.chat_type is ChatType.DIRECT]
        others = await self._others(caller, direct)
        return [_line(entry, acked.get(entry.chat.chat_id, 0), others) for entry in page]

    async def _others(self, caller: str, chat_ids: Sequence[str]) -> Mapping[str, OtherMember]:
        async def other(chat_id: str) -> list[str]:
            members = await self._catalog.memberships(chat_id, timeout_s=limits.API_TIMEOUT_S)
            return [member.user_id for member in members if member.user_id != caller]

        found = await bounded_gather(other, chat_ids, at_once=limits.ENRICH_IN_PROGRESS_MAX)
        by_chat = {chat_id: others[0] for chat_id, others in zip(chat_ids, found, strict=True) if others}
        names = await self._names.of(by_chat.values())
        return {
            chat_id: OtherMember(user_id=user_id, display_name=names[user_id]) for chat_id, user_id in by_chat.items()
        }


_ENDPOINT = "chats"


class _ListedChat(msgspec.Struct, frozen=True):
    chat: Chat
    mine: Membership
    last: Message | None
    activity_ms: int


def _key(entry: _ListedChat) -> tuple[int, str]:
    return -entry.activity_ms, entry.chat.chat_id


def _moment(entry: _ListedChat) -> tuple[int, str]:
    return entry.activity_ms, entry.chat.chat_id


def check_query(query: ChatsQuery, caller_id: str, cursors: CursorCodec) -> tuple[int | None, ChatListCursor | None]:
    """Since when, and where to go on. A cursor brings its own filter; repeating it is fine, changing it is not."""
    since_ms = None if query.updated_since is None else _time(query.updated_since)
    if query.cursor is None:
        return since_ms, None
    place = cursors.decode(query.cursor, _ENDPOINT, caller_id, ChatListCursor)
    if since_ms is not None and since_ms != place.since_ms:
        raise ValidationFailed("the cursor has another filter", field="updated_since", field_code="MISMATCH")
    return place.since_ms, place


def _time(text: str) -> int:
    try:
        return milliseconds(text)
    except (ValueError, TypeError):  # TypeError: a time without an offset
        raise ValidationFailed(
            "give a time such as 2026-01-30T14:30:00.000Z", field="updated_since", field_code="INVALID_FORMAT"
        ) from None


def _line(entry: _ListedChat, acked: int, others: Mapping[str, OtherMember]) -> ChatListItem:
    chat, mine, last = entry.chat, entry.mine, entry.last
    return ChatListItem(
        chat_id=chat.chat_id,
        type=chat.chat_type,
        name=chat.name,
        created_at=chat.created_at,
        updated_at=chat.updated_at,
        member_count=chat.member_count,
        my_membership=MyMembership(role=mine.role, joined_at=mine.joined_at, muted_until=mine.muted_until),
        last_message=None if last is None else _last(last),
        pending_ack_count=max(0, (last.sequence if last else 0) - acked),
        other_member=others.get(chat.chat_id, UNSET),
    )


def _last(message: Message) -> LastMessage:
    return LastMessage(
        message_id=message.message_id,
        sequence=message.sequence,
        sender_id=message.sender_id,
        content_preview=message.content[: limits.PREVIEW_CHARS_MAX],
        created_at=message.created_at,
    )


def routes(chats: ChatListResource) -> Sequence[Route]:
    return [
        Route(
            method="GET",
            path="/chats",
            handler=chats.page,
            summary="Your chats, newest activity first",
            tag="chats",
            query=ChatsQuery,
            answers={200: list[ChatListItem]},
            paged=True,
        )
    ]
