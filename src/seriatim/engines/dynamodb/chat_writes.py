"""The writes of changes of chats (W5-W11), to be put into transactions.

Each has the condition that its row is still as it was read: if not, nothing of the transaction is written.
"""

from collections.abc import Sequence

from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType, Membership, Role
from seriatim.domain.times import iso
from seriatim.engines.dynamodb.rows import chats as rows
from seriatim.engines.dynamodb.rows.attributes import S, n, text_or_null
from seriatim.engines.dynamodb.rows.messages import counter_item, members_sum
from seriatim.engines.dynamodb.store import CHATS, COUNTERS, MEMBERSHIPS, PAIRS, DynamoStore
from seriatim.engines.dynamodb.transport.client import Request
from seriatim.engines.shared.store_rules import NEW_COUNTER

_ABSENT = "attribute_not_exists(chat_id)"
_AS_SEEN = "#role = :seen"
_ROLE = {"#role": "role"}
_STATUS = {"#status": "status"}


class ChatWrites:
    def __init__(self, store: DynamoStore) -> None:
        self._writing = store.write_request

    # --- creation ---

    def create_chat(self, chat: Chat, members: Sequence[Membership], now_ms: int) -> list[Request]:
        """A counter without a chat also means that the id is taken: a second counter would start at 0."""
        counter = counter_item(chat.chat_id, NEW_COUNTER, [each.user_id for each in members], now_ms)
        return [
            {"Put": self._writing(CHATS, {"Item": rows.chat_item(chat, len(members))}, _ABSENT)},
            {"Put": self._writing(COUNTERS, {"Item": counter}, _ABSENT)},
            *(self.put_member(member) for member in members),
        ]

    def put_pair(self, pair: str, chat_id: str, now_ms: int) -> Request:
        item = rows.PairItem(pair_key=S(pair), chat_id=S(chat_id), created_at=S(iso(now_ms)))
        return {"Put": self._writing(PAIRS, {"Item": item}, "attribute_not_exists(pair_key)")}

    def put_remaining_members(self, chat_id: str, rest: Sequence[Membership], now_ms: int) -> list[Request]:
        """The members that found no room in the first transaction, whatever has happened since."""
        values = {
            ":more": n(len(rest)),
            ":room": n(limits.GROUP_MEMBERS_MAX - len(rest)),
            ":group": S(ChatType.GROUP.value),
            ":now": S(iso(now_ms)),
        }
        update = "SET member_count = member_count + :more, updated_at = :now"
        condition = "chat_type = :group AND member_count <= :room"
        key = {"Key": {"chat_id": S(chat_id)}, "UpdateExpression": update}
        return [
            *(self.put_member(member) for member in rest),
            {"Update": self._writing(CHATS, key, condition, values)},
            self.raise_members_version(chat_id, joined=[member.user_id for member in rest]),
        ]

    # --- members ---

    def put_member(self, member: Membership) -> Request:
        item = {"Item": rows.membership_item(member)}
        return {"Put": self._writing(MEMBERSHIPS, item, "attribute_not_exists(user_id)")}

    def delete_member(self, member: Membership) -> Request:
        key = {"Key": rows.member_key(member.chat_id, member.user_id)}
        return {"Delete": self._writing(MEMBERSHIPS, key, _AS_SEEN, {":seen": S(member.role.value)}, _ROLE)}

    def set_role(self, member: Membership, role: Role, now_ms: int) -> Request:
        what = {
            "Key": rows.member_key(member.chat_id, member.user_id),
            "UpdateExpression": "SET #role = :role, updated_at = :now",
        }
        values = {":seen": S(member.role.value), ":role": S(role.value), ":now": S(iso(now_ms))}
        return {"Update": self._writing(MEMBERSHIPS, what, _AS_SEEN, values, _ROLE)}

    def check_role_unchanged(self, caller: Membership) -> Request:
        """The caller has the role with which the rules were checked."""
        key = {"Key": rows.member_key(caller.chat_id, caller.user_id)}
        return {"ConditionCheck": self._writing(MEMBERSHIPS, key, _AS_SEEN, {":seen": S(caller.role.value)}, _ROLE)}

    # --- the chat ---

    def set_member_count(self, chat: Chat, change: int, now_ms: int) -> Request:
        """The condition makes the number of members known afterwards."""
        what = {
            "Key": {"chat_id": S(chat.chat_id)},
            "UpdateExpression": "SET member_count = :count, updated_at = :now",
        }
        values = {
            ":count": n(chat.member_count + change),
            ":seen": n(chat.member_count),
            ":group": S(ChatType.GROUP.value),
            ":active": S(rows.ACTIVE),
            ":now": S(iso(now_ms)),
        }
        condition = "chat_type = :group AND #status = :active AND member_count = :seen"
        return {"Update": self._writing(CHATS, what, condition, values, _STATUS)}

    def set_name(self, chat: Chat, name: str | None, now_ms: int) -> Request:
        what = {
            "Key": {"chat_id": S(chat.chat_id)},
            "UpdateExpression": "SET #name = :name, updated_at = :now",
        }
        values = {
            ":name": text_or_null(name),
            ":seen": n(chat.member_count),
            ":group": S(ChatType.GROUP.value),
            ":now": S(iso(now_ms)),
        }
        condition = "chat_type = :group AND member_count = :seen"
        return {"Update": self._writing(CHATS, what, condition, values, {"#name": "name"})}

    def raise_members_version(self, chat_id: str, *, joined: Sequence[str] = (), left: Sequence[str] = ()) -> Request:
        """Fails without the counter row: then nothing may change."""
        what = {
            "Key": {"chat_id": S(chat_id)},
            "UpdateExpression": "ADD members_version :one, members_sum :change",
        }
        values = {":one": n(1), ":change": n(members_sum(joined) - members_sum(left))}
        return {"Update": self._writing(COUNTERS, what, "attribute_exists(sequence_counter)", values)}
