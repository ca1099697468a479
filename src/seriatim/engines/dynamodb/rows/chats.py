"""Rows of `chats`, `chat_memberships` and `direct_chat_index` (docs/spec/data.md#tables)."""

import msgspec

from seriatim.domain.chat import Chat, ChatType, Membership, Role
from seriatim.engines.dynamodb.rows.attributes import N, RowDecoder, S, TextOrNull, n, text_or_null
from seriatim.engines.dynamodb.store import CHATS_OF_USER

ACTIVE = "active"


class ChatItem(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: S
    chat_type: S
    name: TextOrNull
    created_by: S
    created_at: S
    updated_at: S
    status: S
    member_count: N


def chat_item(chat: Chat, member_count: int) -> ChatItem:
    return ChatItem(
        chat_id=S(chat.chat_id),
        chat_type=S(chat.chat_type.value),
        name=text_or_null(chat.name),
        created_by=S(chat.created_by),
        created_at=S(chat.created_at),
        updated_at=S(chat.updated_at),
        status=S(ACTIVE),
        member_count=n(member_count),
    )


def chat_from(item: ChatItem) -> Chat:
    return Chat(
        chat_id=item.chat_id.S,
        chat_type=ChatType(item.chat_type.S),
        name=item.name.S,
        created_by=item.created_by.S,
        created_at=item.created_at.S,
        updated_at=item.updated_at.S,
        member_count=int(item.member_count.N),
    )


class MembershipItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    chat_id: S
    user_id: S
    role: S
    joined_at: S
    added_by: S
    muted_until: S | None = None
    updated_at: S | None = None


def membership_item(row: Membership) -> MembershipItem:
    return MembershipItem(
        chat_id=S(row.chat_id),
        user_id=S(row.user_id),
        role=S(row.role.value),
        joined_at=S(row.joined_at),
        added_by=S(row.added_by),
        muted_until=None if row.muted_until is None else S(row.muted_until),
        updated_at=S(row.joined_at),
    )


def member_key(chat_id: str, user_id: str) -> dict[str, S]:
    return {"chat_id": S(chat_id), "user_id": S(user_id)}


def members_query(chat_id: str) -> dict[str, object]:
    """All members of a chat, as of now."""
    return {
        "KeyConditionExpression": "chat_id = :chat",
        "ExpressionAttributeValues": {":chat": S(chat_id)},
        "ConsistentRead": True,
    }


def user_chats_query(user_id: str) -> dict[str, object]:
    """All memberships of a user, from an index that lags."""
    return {
        "IndexName": CHATS_OF_USER,
        "KeyConditionExpression": "user_id = :user",
        "ExpressionAttributeValues": {":user": S(user_id)},
    }


def membership_from(item: MembershipItem) -> Membership:
    return Membership(
        chat_id=item.chat_id.S,
        user_id=item.user_id.S,
        role=Role(item.role.S),
        joined_at=item.joined_at.S,
        added_by=item.added_by.S,
        muted_until=None if item.muted_until is None else item.muted_until.S,
    )


class PairItem(msgspec.Struct, frozen=True, kw_only=True):
    pair_key: S
    chat_id: S
    created_at: S


CHAT = RowDecoder(ChatItem)
MEMBERSHIP = RowDecoder(MembershipItem)
PAIR = RowDecoder(PairItem)
