"""Chats over REST: create, show, rename, mute. Membership changes are in `members`."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from seriatim.api.access import ChatAccess
from seriatim.api.chat_views import ChatDetail, ChatOverview, ChatViews
from seriatim.api.core.fields import UserId
from seriatim.api.core.idempotency import IdempotencyGuard
from seriatim.api.core.route import ApiRequest, ApiResponse, Nothing, Route
from seriatim.api.display_names import DisplayNames
from seriatim.domain import limits
from seriatim.domain.account import is_clean
from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.errors import (
    Forbidden,
    InvalidOperation,
    KeyReused,
    NotAMember,
    NotFound,
    StillInProgress,
    UserNotFound,
    ValidationFailed,
)
from seriatim.domain.ids import CHAT, is_id, new_ulid
from seriatim.domain.times import iso
from seriatim.ports.catalog import Catalog
from seriatim.ports.clock import Clock
from seriatim.services.chat_quota import ChatQuota
from seriatim.services.membership import MembershipService

FOR_EVER = "9999-12-31T23:59:59.999Z"

_OTHERS = Annotated[
    list[UserId],
    Meta(
        min_length=1,
        max_length=limits.GROUP_MEMBERS_MAX - 1,
        description="The other members, each once, without yourself; exactly one for a direct chat.",
        extra_json_schema={"uniqueItems": True},
    ),
]
_NAME = f"1-{limits.CHAT_NAME_CHARS_MAX} characters after trimming, no control characters; null for none."


class NewChat(msgspec.Struct, frozen=True, kw_only=True):
    type: ChatType
    member_ids: _OTHERS | UnsetType = UNSET
    members: _OTHERS | UnsetType = UNSET  # the same under its older name
    name: Annotated[str | None, Meta(description=f"{_NAME} Direct chats have no name: it is ignored.")] = None


_NewChatBody = Annotated[
    NewChat, Meta(extra_json_schema={"anyOf": [{"required": ["member_ids"]}, {"required": ["members"]}]})
]


class Rename(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str | None, Meta(description=_NAME, extra_json_schema={"minLength": 1})]


class Mute(msgspec.Struct, frozen=True, kw_only=True):
    duration_hours: Annotated[int, Meta(ge=1, le=limits.MUTE_HOURS_MAX)] | None = None


class Muted(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    muted_until: str | None


class ChatResource:
    def __init__(
        self,
        *,
        catalog: Catalog,
        service: MembershipService,
        views: ChatViews,
        names: DisplayNames,
        access: ChatAccess,
        idempotency: IdempotencyGuard,
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._quota = ChatQuota(catalog)
        self._service = service
        self._views = views
        self._names = names
        self._access = access
        self._idempotency = idempotency
        self._clock = clock

    async def create(self, request: ApiRequest[NewChat, Nothing]) -> ApiResponse:
        caller, body = request.caller_id, request.body
        others, name = check_new(body, caller)

        async def work(chat_id: str, resumed: bool) -> ApiResponse:
            await self._check_known(others)
            chat = self._chat(chat_id, body.type, name, caller, len(others))
            if body.type is ChatType.DIRECT:
                await self._quota.check_pair(chat_id, caller, others[0])
                return await self._create_direct(chat, others[0])
            await self._quota.check(chat_id, (caller, *others))
            await self._service.create_group(chat, others, resumed=resumed)
            return ApiResponse(status=201, data=await self._views.detail(chat_id, caller))

        async def replay(chat_id: str) -> object:
            if body.type is ChatType.DIRECT:  # the pair may have had a chat before: then it is that one, for ever
                chat = self._chat(chat_id, body.type, None, caller, len(others))
                chat_id = await self._catalog.create_direct(
                    chat, others[0], now_ms=self._clock.now_ms(), timeout_s=limits.API_TIMEOUT_S
                )
            return await self._views.detail(chat_id, caller)

        new_id = CHAT + new_ulid(self._clock.now_ms(), self._clock.random_bits)
        return await self._idempotency.run(request, "POST /chats", new_id, work, replay)

    async def detail(self, request: ApiRequest[Nothing, Nothing]) -> ApiResponse:
        return ApiResponse(data=await self._views.detail(request.path["chat_id"], request.caller_id))

    async def rename(self, request: ApiRequest[Rename, Nothing]) -> ApiResponse:
        chat_id, caller = request.path["chat_id"], request.caller_id
        name = check_name(request.body.name)
        async with self._access.require_member(chat_id, caller):
            await self._service.rename(chat_id, name, by=caller)
        return ApiResponse(data=await self._views.short(chat_id, caller))

    async def mute(self, request: ApiRequest[Mute, Nothing]) -> ApiResponse:
        hours = request.body.duration_hours
        until = FOR_EVER if hours is None else iso(self._clock.now_ms() + hours * 3_600_000)
        return await self._mute(request.path["chat_id"], request.caller_id, until)

    async def unmute(self, request: ApiRequest[Nothing, Nothing]) -> ApiResponse:
        return await self._mute(request.path["chat_id"], request.caller_id, None)

    async def _check_known(self, user_ids: Sequence[str]) -> None:
        missing = await self._names.missing(user_ids)
        if missing:
            raise UserNotFound("some of these users do not exist", details={"user_ids": list(missing)})

    def _chat(self, chat_id: str, chat_type: ChatType, name: str | None, caller: str, others: int) -> Chat:
        now = iso(self._clock.now_ms())
        return Chat(
            chat_id=chat_id,
            chat_type=chat_type,
            name=name,
            created_by=caller,
            created_at=now,
            updated_at=now,
            member_count=1 + others,
        )

    async def _create_direct(self, chat: Chat, other_id: str) -> ApiResponse:
        chat_id = await self._service.create_direct(chat, other_id)
        data = await self._views.detail(chat_id, chat.created_by)
        if chat_id == chat.chat_id:
            return ApiResponse(status=201, data=data)
        return ApiResponse(status=200, data=data, headers={"x-idempotent-replay": "true"})

    async def _mute(self, chat_id: str, caller: str, until: str | None) -> ApiResponse:
        async with self._access.require_member(chat_id, caller):
            changed = await self._catalog.mute(chat_id, caller, until, timeout_s=limits.API_TIMEOUT_S)
        return ApiResponse(data=Muted(chat_id=chat_id, muted_until=changed.muted_until))


def check_new(body: NewChat, caller_id: str) -> tuple[list[str], str | None]:
    """The other members and the name, if they can be."""
    given = [each for each in (body.member_ids, body.members) if not isinstance(each, UnsetType)]
    if not given:
        raise ValidationFailed("name the other members", field="member_ids", field_code="REQUIRED")
    if given[0] != given[-1]:
        raise ValidationFailed("members is another name of member_ids", field="members", field_code="MISMATCH")
    others = given[0]
    if not all(is_id(each) for each in others):
        raise ValidationFailed("this holds no user id", field="member_ids", field_code="INVALID_FORMAT")
    if caller_id in others:
        raise ValidationFailed("you are a member without being named", field="member_ids", field_code="NOT_ALLOWED")
    if len(dict.fromkeys(others)) != len(others):
        raise ValidationFailed("name everybody once", field="member_ids", field_code="NOT_ALLOWED")
    if body.type is ChatType.DIRECT:
        if len(others) != 1:
            raise ValidationFailed("a direct chat has one other member", field="member_ids", field_code="TOO_LONG")
        return others, None
    return others, check_name(body.name)


def check_name(name: str | None) -> str | None:
    if name is None:
        return None
    trimmed = name.strip()
    if not trimmed:
        raise ValidationFailed("a name has at least one character", field="name", field_code="MIN_LENGTH")
    if len(trimmed) > limits.CHAT_NAME_CHARS_MAX:
        raise ValidationFailed(f"at most {limits.CHAT_NAME_CHARS_MAX} characters", field="name", field_code="TOO_LONG")
    if not is_clean(trimmed):
        raise ValidationFailed("a name has no control characters", field="name", field_code="INVALID_FORMAT")
    return trimmed


def routes(chats: ChatResource) -> Sequence[Route]:
    outside = (NotAMember, NotFound)
    return [
        Route(
            method="POST",
            path="/chats",
            handler=chats.create,
            summary="Create a chat",
            description=(
                "A pair of users has one direct chat: if it exists, it is the answer, with status 200. "
                "A group is made each time, unless the Idempotency-Key is the same. "
                f"A user is in at most {limits.CHATS_PER_USER_MAX} chats."
            ),
            tag="chats",
            body=_NewChatBody,
            answers={201: ChatDetail, 200: ChatDetail},
            errors=(UserNotFound, InvalidOperation, KeyReused, StillInProgress),
        ),
        Route(
            method="GET",
            path="/chats/{chat_id}",
            handler=chats.detail,
            summary="One chat with its members",
            tag="chats",
            answers={200: ChatDetail},
            errors=outside,
        ),
        Route(
            method="PATCH",
            path="/chats/{chat_id}",
            handler=chats.rename,
            summary="Rename a group",
            description="For the owner and admins.",
            tag="chats",
            body=Rename,
            answers={200: ChatOverview},
            errors=(*outside, Forbidden, InvalidOperation),
        ),
        Route(
            method="POST",
            path="/chats/{chat_id}/mute",
            handler=chats.mute,
            summary="Ask for quiet, for some hours or for ever",
            tag="chats",
            body=Mute,
            body_optional=True,
            answers={200: Muted},
            errors=outside,
        ),
        Route(
            method="POST",
            path="/chats/{chat_id}/unmute",
            handler=chats.unmute,
            summary="End the quiet",
            tag="chats",
            answers={200: Muted},
            errors=outside,
        ),
    ]
