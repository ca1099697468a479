"""Members of a chat over REST: list, add, remove, promote, leave.

The order of checks is docs/spec/rest.md#order-of-checks: the caller's membership, the kind of chat, the caller's role,
then the target.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from seriatim.api.access import ChatAccess
from seriatim.api.chat_views import MemberView, member_views
from seriatim.api.core.cursor import CursorCodec
from seriatim.api.core.fields import PageCursor, PageLimit, Time, UserId
from seriatim.api.core.idempotency import IdempotencyGuard
from seriatim.api.core.pages import page_of
from seriatim.api.core.route import ApiRequest, ApiResponse, Nothing, Route
from seriatim.api.display_names import DisplayNames
from seriatim.domain import limits
from seriatim.domain.chat import Membership, Role, check_group, check_may_add
from seriatim.domain.errors import (
    AlreadyAMember,
    ChatFull,
    Forbidden,
    InvalidOperation,
    KeyReused,
    NotAMember,
    NotFound,
    StillInProgress,
    UserNotFound,
    ValidationFailed,
)
from seriatim.domain.ids import is_id
from seriatim.ports.catalog import Catalog
from seriatim.services.chat_quota import ChatQuota
from seriatim.services.membership import MembershipService

_GivenRole = Annotated[
    Role,
    Meta(
        description="admin or member. A group keeps the owner who made it.",
        extra_json_schema={"enum": [Role.ADMIN.value, Role.MEMBER.value]},
    ),
]


class MembersQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: PageLimit = limits.PAGE_ITEMS_MAX
    cursor: PageCursor | None = None


class Action(StrEnum):
    ADD = "add"
    REMOVE = "remove"


class ChangeMember(msgspec.Struct, frozen=True, kw_only=True):
    user_id: UserId
    role: _GivenRole = Role.MEMBER
    action: Annotated[
        Action | None, Meta(description="An older form of this call, and of the removal; its answers have status 200.")
    ] = None


class NewRole(msgspec.Struct, frozen=True, kw_only=True):
    role: _GivenRole


class MemberOfChat(MemberView, frozen=True, kw_only=True):
    chat_id: str


class AddedMember(MemberOfChat, frozen=True, kw_only=True):
    added_by: str


class ChangedMember(MemberOfChat, frozen=True, kw_only=True):
    updated_by: str


class RemovedMember(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    user_id: str
    removed: bool = True


class LegacyMemberResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What the older form answers: an `AddedMember` or a `RemovedMember`. Only for the OpenAPI document."""

    chat_id: str
    user_id: str
    role: Role | UnsetType = UNSET
    display_name: str | UnsetType | None = UNSET
    joined_at: Time | UnsetType = UNSET
    added_by: str | UnsetType = UNSET
    removed: bool | UnsetType = UNSET


class MembersCursor(msgspec.Struct, frozen=True):
    """Where a page of members ended: what a cursor remembers."""

    user_id: str
    back: bool


class MemberResource:
    def __init__(
        self,
        *,
        catalog: Catalog,
        service: MembershipService,
        names: DisplayNames,
        access: ChatAccess,
        idempotency: IdempotencyGuard,
        cursors: CursorCodec,
    ) -> None:
        self._catalog = catalog
        self._quota = ChatQuota(catalog)
        self._service = service
        self._names = names
        self._access = access
        self._idempotency = idempotency
        self._cursors = cursors

    async def page(self, request: ApiRequest[Nothing, MembersQuery]) -> ApiResponse:
        chat_id, caller = request.path["chat_id"], request.caller_id
        endpoint, scope = "members", f"{caller}#{chat_id}"
        text = request.query.cursor
        place = None if text is None else self._cursors.decode(text, endpoint, scope, MembersCursor)
        async with self._access.require_member(chat_id, caller):
            members = await self._catalog.memberships(chat_id, timeout_s=limits.API_TIMEOUT_S)
        page, pagination = page_of(
            members,
            request.query.limit,
            key=lambda member: member.user_id,
            edge=None if place is None else place.user_id,
            back=place is not None and place.back,
            cursor=lambda member, back: self._cursors.encode(endpoint, scope, MembersCursor(member.user_id, back)),
        )
        names = await self._names.of(member.user_id for member in page)
        return ApiResponse(data=member_views(page, names), pagination=pagination)

    async def change(self, request: ApiRequest[ChangeMember, Nothing]) -> ApiResponse:
        """Adds; or removes, in the older form."""
        chat_id, caller, body = request.path["chat_id"], request.caller_id, request.body
        check_user_id(body.user_id)
        removes = body.action is Action.REMOVE

        async def work(user_id: str, resumed: bool) -> ApiResponse:
            if removes:
                await self._remove(chat_id, user_id, caller, resumed)
                return ApiResponse(data=RemovedMember(chat_id=chat_id, user_id=user_id))
            added = await self._add(chat_id, user_id, body.role, caller, resumed)
            return ApiResponse(status=201 if body.action is None else 200, data=await self._added(added))

        async def replay(user_id: str) -> object:
            async with self._access.require_member(chat_id, caller):
                if removes:
                    return RemovedMember(chat_id=chat_id, user_id=user_id)
                added = await self._catalog.membership(chat_id, user_id, timeout_s=limits.API_TIMEOUT_S)
            if added is None:
                raise NotFound("that user was added, and is not a member any more")
            return await self._added(added)

        return await self._idempotency.run(request, "POST /chats/{chat_id}/members", body.user_id, work, replay)

    async def remove(self, request: ApiRequest[Nothing, Nothing]) -> ApiResponse:
        await self._remove(request.path["chat_id"], request.path["user_id"], request.caller_id, False)
        return ApiResponse(status=204)

    async def change_role(self, request: ApiRequest[NewRole, Nothing]) -> ApiResponse:
        chat_id, caller = request.path["chat_id"], request.caller_id
        async with self._access.require_member(chat_id, caller):
            changed = await self._service.change_role(chat_id, request.path["user_id"], request.body.role, by=caller)
        return ApiResponse(
            data=ChangedMember(
                chat_id=chat_id,
                user_id=changed.user_id,
                role=changed.role,
                display_name=await self._name(changed.user_id),
                joined_at=changed.joined_at,
                updated_by=caller,
            )
        )

    async def leave(self, request: ApiRequest[Nothing, Nothing]) -> ApiResponse:
        chat_id, caller = request.path["chat_id"], request.caller_id
        async with self._access.require_member(chat_id, caller):
            await self._service.leave(chat_id, caller)
        return ApiResponse(status=204)

    async def _add(self, chat_id: str, user_id: str, role: Role, caller: str, resumed: bool) -> Membership:
        async with self._access.require_member(chat_id, caller) as mine:
            # A caller who may not add members must not learn which users exist: so role and kind are checked first.
            chat = await self._catalog.chat(chat_id, timeout_s=limits.API_TIMEOUT_S)
            if chat is None:
                raise NotFound("there is no such chat")
            check_group(chat.chat_type)
            check_may_add(mine.role, role)
            if await self._names.missing([user_id]):
                raise UserNotFound("this user does not exist", details={"user_ids": [user_id]})
            await self._quota.check(chat_id, (user_id,))
            try:
                return await self._service.add(chat_id, user_id, role, by=caller)
            except AlreadyAMember:
                present = await self._catalog.membership(chat_id, user_id, timeout_s=limits.API_TIMEOUT_S)
                if resumed and present is not None and present.added_by == caller:
                    return present  # by the attempt that this one resumes
                raise

    async def _added(self, added: Membership) -> AddedMember:
        return AddedMember(
            chat_id=added.chat_id,
            user_id=added.user_id,
            role=added.role,
            display_name=await self._name(added.user_id),
            joined_at=added.joined_at,
            added_by=added.added_by,
        )

    async def _remove(self, chat_id: str, user_id: str, caller: str, resumed: bool) -> None:
        async with self._access.require_member(chat_id, caller):
            try:
                await self._service.remove(chat_id, user_id, by=caller)
            except NotFound:
                if not resumed:  # by the attempt that this one resumes
                    raise

    async def _name(self, user_id: str) -> str | None:
        return (await self._names.of([user_id]))[user_id]


def check_user_id(user_id: str) -> None:
    if not is_id(user_id):
        raise ValidationFailed("this is no user id", field="user_id", field_code="INVALID_FORMAT")


def routes(members: MemberResource) -> Sequence[Route]:
    outside = (NotAMember, NotFound)
    refused = (*outside, Forbidden, InvalidOperation)
    return [
        Route(
            method="GET",
            path="/chats/{chat_id}/members",
            handler=members.page,
            summary="The members of a chat, by user id",
            tag="members",
            query=MembersQuery,
            answers={200: list[MemberView]},
            errors=outside,
            paged=True,
        ),
        Route(
            method="POST",
            path="/chats/{chat_id}/members",
            handler=members.change,
            summary="Add a member to a group",
            description="For the owner and admins; only the owner adds admins. New members see the whole history.",
            tag="members",
            body=ChangeMember,
            answers={201: AddedMember, 200: LegacyMemberResponse},
            errors=(*refused, UserNotFound, ChatFull, AlreadyAMember, KeyReused, StillInProgress),
        ),
        Route(
            method="DELETE",
            path="/chats/{chat_id}/members/{user_id}",
            handler=members.remove,
            summary="Remove a member from a group",
            description="For the owner and admins; only the owner removes admins. Access ends at once.",
            tag="members",
            answers={204: Nothing},
            errors=refused,
        ),
        Route(
            method="PATCH",
            path="/chats/{chat_id}/members/{user_id}",
            handler=members.change_role,
            summary="Make a member an admin, or an admin a member",
            description="For the owner.",
            tag="members",
            body=NewRole,
            answers={200: ChangedMember},
            errors=refused,
        ),
        Route(
            method="POST",
            path="/chats/{chat_id}/leave",
            handler=members.leave,
            summary="Leave a group",
            description="Not for the owner, and not for direct chats.",
            tag="members",
            answers={204: Nothing},
            errors=(*outside, InvalidOperation),
        ),
    ]
