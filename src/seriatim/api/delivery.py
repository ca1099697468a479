"""Watermarks over REST: the caller's own, and which members of a chat have received a message.

A watermark is per user, never falls, and never passes the newest message (docs/spec/websocket.md#acks-and-watermarks).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from seriatim.api.access import ChatAccess
from seriatim.api.core.cursor import CursorCodec
from seriatim.api.core.fields import MessageSequence, PageCursor, PageLimit
from seriatim.api.core.pages import page_of
from seriatim.api.core.route import ApiRequest, ApiResponse, Nothing, Route
from seriatim.api.display_names import DisplayNames
from seriatim.api.history_reader import HistoryReader
from seriatim.concurrency.bounded_gather import bounded_gather
from seriatim.domain import limits
from seriatim.domain.chat import ChatType, Membership
from seriatim.domain.errors import NotAMember, NotFound, Unprocessable, ValidationFailed
from seriatim.domain.ids import is_id
from seriatim.domain.times import iso
from seriatim.ports.catalog import Catalog
from seriatim.ports.durability import Durability
from seriatim.ports.message_log import DeliveryState, Watermark

_Since = Annotated[str | None, Meta(description="null while nothing was acknowledged.")]


class StatesQuery(msgspec.Struct, frozen=True, kw_only=True):
    chat_ids: Annotated[
        str | None,
        Meta(
            description=f"At most {limits.DELIVERY_CHATS_MAX} chat ids with commas between; all your chats if left out."
        ),
    ] = None


class ChatState(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    last_acked_sequence: int
    current_sequence: int
    pending_ack_count: int
    unread_count: Annotated[int, Meta(description="The same as pending_ack_count, kept for compatibility.")]
    updated_at: _Since


class AcknowledgeRequest(msgspec.Struct, frozen=True, kw_only=True):
    last_acked_sequence: Annotated[MessageSequence, Meta(description="Everything up to here was stored.")]


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    last_acked_sequence: Annotated[int, Meta(ge=0, description="As stored: never lower than before.")]
    updated_at: _Since


class StatusQuery(msgspec.Struct, frozen=True, kw_only=True):
    for_sequence: Annotated[MessageSequence | None, Meta(description="The newest message if left out.")] = None
    limit: PageLimit = limits.PAGE_ITEMS_MAX
    cursor: PageCursor | None = None


class DeliverySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Over all members, whatever page is shown. Who wrote the message has received it."""

    sequence: int
    delivered_count: int
    pending_count: int
    all_delivered: bool


class MemberState(msgspec.Struct, frozen=True, kw_only=True):
    user_id: str
    display_name: str | None
    last_acked_sequence: int
    updated_at: _Since


class DeliveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    chat_type: ChatType
    member_count: int
    delivery_summary: DeliverySummary
    members: list[MemberState]


class DeliveryStatusCursor(msgspec.Struct, frozen=True):
    """Where a page of members ended, and for which message: what a cursor remembers."""

    user_id: str
    for_sequence: int
    back: bool


class DeliveryResource:
    def __init__(
        self,
        *,
        catalog: Catalog,
        delivery: DeliveryState,
        durability: Durability,
        history: HistoryReader,
        names: DisplayNames,
        access: ChatAccess,
        cursors: CursorCodec,
    ) -> None:
        self._catalog = catalog
        self._delivery = delivery
        self._durability = durability
        self._history = history
        self._names = names
        self._access = access
        self._cursors = cursors

    async def states(self, request: ApiRequest[Nothing, StatesQuery]) -> ApiResponse:
        caller = request.caller_id
        wanted = check_chat_ids(request.query.chat_ids)
        if wanted is None:
            mine = await self._catalog.memberships_of(caller, timeout_s=limits.API_TIMEOUT_S)
            wanted = [membership.chat_id for membership in mine]

        async def newest(chat_id: str) -> int | None:
            """None for a chat that does not exist, or that the caller is not a member of: it is left out."""
            if await self._catalog.membership(chat_id, caller, timeout_s=limits.API_TIMEOUT_S) is None:
                return None
            return await self._newest(chat_id)

        found = await bounded_gather(newest, wanted, at_once=limits.ENRICH_IN_PROGRESS_MAX)
        current = {chat_id: each for chat_id, each in zip(wanted, found, strict=True) if each is not None}
        marks = await self._watermarks([(caller, chat_id) for chat_id in current])
        return ApiResponse(data=[_state(each, current[each], marks.get((caller, each))) for each in current])

    async def acknowledge(self, request: ApiRequest[AcknowledgeRequest, Nothing]) -> ApiResponse:
        chat_id, caller, sequence = request.path["chat_id"], request.caller_id, request.body.last_acked_sequence
        async with self._access.require_member(chat_id, caller):
            newest = await self._newest(chat_id)
            if sequence > newest:
                raise Unprocessable(
                    "no message has this sequence yet; acknowledge only what you received",
                    details={"reason": "invalid_sequence", "current_sequence": newest},
                )
            await self._durability.acknowledge(caller, chat_id, sequence=sequence, timeout_s=limits.API_TIMEOUT_S)
            mark = (await self._watermarks([(caller, chat_id)])).get((caller, chat_id))
        return ApiResponse(
            data=Acknowledged(chat_id=chat_id, last_acked_sequence=_sequence(mark), updated_at=_updated_at(mark))
        )

    async def status(self, request: ApiRequest[Nothing, StatusQuery]) -> ApiResponse:
        chat_id, caller, query = request.path["chat_id"], request.caller_id, request.query
        scope = f"{caller}#{chat_id}"
        place = check_place(query, scope, self._cursors)
        async with self._access.require_member(chat_id, caller):
            chat = await self._catalog.chat(chat_id, timeout_s=limits.API_TIMEOUT_S)
            if chat is None:
                raise NotFound("there is no such chat")
            asked = query.for_sequence if place is None else place.for_sequence
            if asked is None:
                message = await self._history.newest(caller, chat_id)
            else:
                message = await self._history.at(caller, chat_id, asked)
            members = await self._catalog.memberships(chat_id, timeout_s=limits.API_TIMEOUT_S)
        sequence = asked if asked is not None else message.sequence if message else 0
        marks = await self._watermarks([(member.user_id, chat_id) for member in members])

        def cursor(member: Membership, back: bool) -> str:
            return self._cursors.encode(_ENDPOINT, scope, DeliveryStatusCursor(member.user_id, sequence, back))

        page, pagination = page_of(
            members,
            query.limit,
            key=lambda member: member.user_id,
            edge=None if place is None else place.user_id,
            back=place is not None and place.back,
            cursor=cursor,
        )
        names = await self._names.of(member.user_id for member in page)
        return ApiResponse(
            data=DeliveryStatus(
                chat_id=chat_id,
                chat_type=chat.chat_type,
                member_count=len(members),
                delivery_summary=_summary(sequence, message.sender_id if message else None, members, marks),
                members=[_member_state(each, names[each.user_id], marks) for each in page],
            ),
            pagination=pagination,
        )

    async def _newest(self, chat_id: str) -> int:
        return await self._delivery.newest_message(chat_id, at_most=limits.SEQUENCE_MAX, timeout_s=limits.API_TIMEOUT_S)

    async def _watermarks(self, pairs: Sequence[tuple[str, str]]) -> "_Marks":
        found: dict[tuple[str, str], Watermark] = {}
        for start in range(0, len(pairs), limits.LOOKUP_KEYS_MAX):
            batch = pairs[start : start + limits.LOOKUP_KEYS_MAX]
            found.update(await self._delivery.watermarks(batch, timeout_s=limits.API_TIMEOUT_S))
        return found


_Marks = Mapping[tuple[str, str], Watermark]

_ENDPOINT = "delivery-status"


def check_chat_ids(text: str | None) -> list[str] | None:
    """Each id once. Text that is no id names no chat of the caller, and is left out."""
    if text is None:
        return None
    ids = list(dict.fromkeys(text.split(",")))
    if len(ids) > limits.DELIVERY_CHATS_MAX:
        raise ValidationFailed(f"at most {limits.DELIVERY_CHATS_MAX} chats", field="chat_ids", field_code="TOO_LONG")
    return [each for each in ids if is_id(each)]


def check_place(query: StatusQuery, scope: str, cursors: CursorCodec) -> DeliveryStatusCursor | None:
    if query.cursor is None:
        return None
    place = cursors.decode(query.cursor, _ENDPOINT, scope, DeliveryStatusCursor)
    if query.for_sequence is not None and query.for_sequence != place.for_sequence:
        raise ValidationFailed("the cursor is for another message", field="for_sequence", field_code="MISMATCH")
    return place


def _sequence(mark: Watermark | None) -> int:
    return mark.sequence if mark else 0


def _updated_at(mark: Watermark | None) -> str | None:
    return iso(mark.updated_at_ms) if mark else None


def _state(chat_id: str, newest: int, mark: Watermark | None) -> ChatState:
    pending = max(0, newest - _sequence(mark))
    return ChatState(
        chat_id=chat_id,
        last_acked_sequence=_sequence(mark),
        current_sequence=newest,
        pending_ack_count=pending,
        unread_count=pending,
        updated_at=_updated_at(mark),
    )


def _summary(sequence: int, sender_id: str | None, members: Sequence[Membership], marks: _Marks) -> DeliverySummary:
    delivered = sum(
        each.user_id == sender_id or _sequence(marks.get((each.user_id, each.chat_id))) >= sequence for each in members
    )
    return DeliverySummary(
        sequence=sequence,
        delivered_count=delivered,
        pending_count=len(members) - delivered,
        all_delivered=delivered == len(members),
    )


def _member_state(member: Membership, display_name: str | None, marks: _Marks) -> MemberState:
    mark = marks.get((member.user_id, member.chat_id))
    return MemberState(
        user_id=member.user_id,
        display_name=display_name,
        last_acked_sequence=_sequence(mark),
        updated_at=_updated_at(mark),
    )


def routes(delivery: DeliveryResource) -> Sequence[Route]:
    outside = (NotAMember, NotFound)
    acknowledge = [
        Route(
            method="PATCH",
            path=path,
            handler=delivery.acknowledge,
            summary="AcknowledgeRequest everything up to a message",
            description="A lower number than before changes nothing. The answer is what is stored.",
            tag="delivery",
            body=AcknowledgeRequest,
            answers={200: Acknowledged},
            errors=(*outside, Unprocessable),
        )
        for path in ("/delivery-state/{chat_id}", "/chats/{chat_id}/delivery-state")
    ]
    return [
        Route(
            method="GET",
            path="/delivery-state",
            handler=delivery.states,
            summary="How far you are in your chats",
            description="Chats that you are not a member of are left out.",
            tag="delivery",
            query=StatesQuery,
            answers={200: list[ChatState]},
        ),
        *acknowledge,
        Route(
            method="GET",
            path="/chats/{chat_id}/delivery-status",
            handler=delivery.status,
            summary="Who has received a message",
            tag="delivery",
            query=StatusQuery,
            answers={200: DeliveryStatus},
            errors=outside,
            paged=True,
        ),
    ]
