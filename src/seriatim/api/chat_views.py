"""A chat as one of its members sees it: the chat row, its members, how far it goes and how far the member is."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from seriatim.api.access import ChatAccess
from seriatim.api.core.fields import Time
from seriatim.api.display_names import DisplayNames
from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType, Membership, Role
from seriatim.domain.errors import NotFound
from seriatim.ports.catalog import Catalog
from seriatim.ports.message_log import DeliveryState


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    user_id: str
    role: Role
    display_name: str | None
    joined_at: Time


class MyMembership(msgspec.Struct, frozen=True, kw_only=True):
    role: Role
    joined_at: Time
    muted_until: Annotated[str | None, Meta(description="null: not muted; the year 9999: for ever.")]


class MyDetailedMembership(MyMembership, frozen=True, kw_only=True):
    last_acked_sequence: Annotated[int, Meta(ge=0, description="Up to where your devices have acknowledged.")]


class ChatOverview(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    type: ChatType
    name: Annotated[str | None, Meta(description="null for direct chats and for groups without a name.")]
    created_by: str
    created_at: Time
    updated_at: Time
    member_count: Annotated[int, Meta(ge=0)]
    current_sequence: Annotated[int, Meta(ge=0, description="The highest stored message's sequence, 0 if none.")]
    my_membership: MyDetailedMembership


class ChatDetail(ChatOverview, frozen=True, kw_only=True):
    members: list[MemberView]


class ChatViews:
    def __init__(self, *, catalog: Catalog, delivery: DeliveryState, names: DisplayNames, access: ChatAccess) -> None:
        self._catalog = catalog
        self._delivery = delivery
        self._names = names
        self._access = access

    async def short(self, chat_id: str, user_id: str) -> ChatOverview:
        async with self._access.require_member(chat_id, user_id) as mine:
            return await self._view(mine)

    async def detail(self, chat_id: str, user_id: str) -> ChatDetail:
        async with self._access.require_member(chat_id, user_id) as mine:
            view = await self._view(mine)
            members = await self._catalog.memberships(chat_id, timeout_s=limits.API_TIMEOUT_S)
        names = await self._names.of(each.user_id for each in members)
        return ChatDetail(**msgspec.structs.asdict(view), members=member_views(members, names))

    async def _view(self, mine: Membership) -> ChatOverview:
        chat = await self._catalog.chat(mine.chat_id, timeout_s=limits.API_TIMEOUT_S)
        if chat is None:
            raise NotFound("there is no such chat")
        newest = await self._delivery.newest_message(
            chat.chat_id, at_most=limits.SEQUENCE_MAX, timeout_s=limits.API_TIMEOUT_S
        )
        me = (mine.user_id, mine.chat_id)
        marks = await self._delivery.watermarks([me], timeout_s=limits.API_TIMEOUT_S)
        return _chat_overview(chat, mine, newest, marks[me].sequence if me in marks else 0)


def _chat_overview(chat: Chat, mine: Membership, newest: int, acked: int) -> ChatOverview:
    return ChatOverview(
        chat_id=chat.chat_id,
        type=chat.chat_type,
        name=chat.name,
        created_by=chat.created_by,
        created_at=chat.created_at,
        updated_at=chat.updated_at,
        member_count=chat.member_count,
        current_sequence=newest,
        my_membership=MyDetailedMembership(
            role=mine.role, joined_at=mine.joined_at, muted_until=mine.muted_until, last_acked_sequence=acked
        ),
    )


def member_views(members: Sequence[Membership], names: Mapping[str, str | None]) -> list[MemberView]:
    return [
        MemberView(user_id=each.user_id, role=each.role, display_name=names[each.user_id], joined_at=each.joined_at)
        for each in members
    ]
