"""One damage for each invariant that `check` looks at: rows of a stored town, changed behind everybody's back."""

from collections.abc import Callable

import msgspec

from seriatim.domain.account import Code, Session, phone_hash
from seriatim.domain.chat import Chat, Membership, Role, pair_key
from seriatim.domain.message import Message, Sealed
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import Disk
from seriatim.engines.embedded.storage.rows import CounterRow, EventRow, WatermarkRow
from seriatim.ports.event_log import CHATS, MESSAGES, Partition
from seriatim.ports.message_log import Key
from tests.unit.operations.stored_town import ANN, BOB, CID, DIRECT, EMPTY, GROUP, PHONES, TOPICS, membership

Damage = Callable[["Rows"], None]


class Rows:
    """The rows of a folder, to be read and overwritten without any rule."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def put(self, key: bytes, value: bytes) -> None:
        self._disk.write({key: value})

    def drop(self, key: bytes) -> None:
        self._disk.write({key: None})

    def raw(self, key: bytes) -> bytes:
        found = self._disk.get(key)
        assert found is not None, key
        return found

    def message(self, chat_id: str, sequence: int) -> Message:
        found = rows.decode_slot(self.raw(slot(chat_id, sequence)))
        assert isinstance(found, Message)
        return found

    def change_message(self, chat_id: str, at: int, **fields: object) -> None:
        changed = msgspec.structs.replace(self.message(chat_id, at), **fields)
        self.put(slot(chat_id, at), rows.encode_slot(changed))

    def change_standing(self, chat_id: str, **fields: object) -> None:
        row = rows.COUNTER.decode(self.raw(rows.counter_key(chat_id)))
        counter = msgspec.structs.replace(row.counter, **fields)
        self.put(rows.counter_key(chat_id), rows.COUNTER.encode(CounterRow(counter=counter)))

    def events(self, topic: str) -> dict[bytes, EventRow]:
        prefix = rows.events_prefix(Partition(topic, 0))[:-4]  # of all partitions
        return {key: rows.EVENT.decode(value) for key, value in self._disk.scan(prefix, rows.after(prefix))}

    def events_of(self, topic: str, chat_id: str) -> dict[bytes, EventRow]:
        return {key: event for key, event in self.events(topic).items() if event.key == chat_id.encode()}


def slot(chat_id: str, sequence: int) -> bytes:
    return rows.slot_key(rows.slots_prefix(chat_id), sequence)


def later(event_key: bytes) -> bytes:
    """The place in the log right behind an event."""
    return event_key[:-8] + (rows.last_number(event_key) + 1).to_bytes(8, "big")


def user_chat(user_id: str, chat_id: str) -> bytes:
    return rows.user_chat_key(user_id, chat_id)


def tombstone(chat_id: str, sequence: int) -> bytes:
    return rows.encode_slot(Sealed(chat_id=chat_id, sequence=sequence, created_at=""))


def key_of(message: Message) -> bytes:
    return rows.idempotency_key(rows.keys_prefix(message.chat_id), message.client_message_id)


# --- one damage each --------------------------------------------------------------------------------------------------


def a_second_message_of_the_same_id(town: Rows) -> None:
    """Published and counted like any other: only its id is not its own."""
    first, last = town.message(GROUP, 1), town.message(GROUP, 5)
    town.drop(key_of(last))
    town.change_message(GROUP, 5, client_message_id=first.client_message_id)
    change_event(town, GROUP, 4, client_message_id=first.client_message_id)


def a_key_gone_before_its_time(town: Rows) -> None:
    town.drop(key_of(town.message(GROUP, 3)))


def a_watermark_beyond_the_end(town: Rows) -> None:
    town.put(rows.watermark_key(BOB, GROUP), rows.WATERMARK.encode(WatermarkRow(6, 0)))


def a_lost_counter(town: Rows) -> None:
    town.drop(rows.counter_key(EMPTY))


def a_counter_of_nobody(town: Rows) -> None:
    town.put(rows.counter_key("chat_ghost"), town.raw(rows.counter_key(EMPTY)))


def messages_of_nobody(town: Rows) -> None:
    town.put(slot("chat_ghost", 1), tombstone("chat_ghost", 1))


def an_overwritten_message(town: Rows) -> None:
    message = town.message(GROUP, 2)
    town.change_message(GROUP, 2, message_id="msg_other")
    _change_key(town, key_of(message), message_id="msg_other")


def a_counter_below_its_slots(town: Rows) -> None:
    town.change_standing(GROUP, allocated=4, published_through=4)


def more_messages_than_the_counter_says(town: Rows) -> None:
    zero = msgspec.structs.replace(town.message(DIRECT, 1), sequence=0, client_message_id="zero", created_at="")
    town.put(slot(DIRECT, 0), rows.encode_slot(zero))


def a_key_of_another_message(town: Rows) -> None:
    _change_key(town, key_of(town.message(GROUP, 2)), content_sha256="0" * 64)


def a_key_of_a_message_that_is_gone(town: Rows) -> None:
    _change_key(town, key_of(town.message(GROUP, 2)), sequence=77)


def a_key_of_somebody_else(town: Rows) -> None:
    _change_key(town, key_of(town.message(GROUP, 2)), sender_id=CID)


def a_slot_that_says_it_is_another(town: Rows) -> None:
    town.change_message(GROUP, 5, sequence=4)


def a_slot_zero(town: Rows) -> None:
    town.put(slot(EMPTY, 0), tombstone(EMPTY, 0))


def a_hole_below_the_published_mark(town: Rows) -> None:
    town.drop(slot(GROUP, 3))


def a_lost_end_below_the_published_mark(town: Rows) -> None:
    town.drop(slot(GROUP, 5))


def an_event_of_a_message_that_was_sealed(town: Rows) -> None:
    town.put(slot(GROUP, 3), tombstone(GROUP, 3))


def an_event_that_says_something_else(town: Rows) -> None:
    change_event(town, GROUP, 1, content="what nobody wrote")


def a_record_that_is_no_event(town: Rows) -> None:
    key, event = list(town.events_of(MESSAGES, GROUP).items())[4]
    town.put(key, rows.EVENT.encode(EventRow(event.key, b"{", (), event.timestamp_ms)))


def a_record_in_another_partition(town: Rows) -> None:
    """As a producer with another partitioner writes it: a repeated event, right in all but its place."""
    key, event = next(iter(town.events_of(MESSAGES, GROUP).items()))
    other = (int.from_bytes(key[-12:-8], "big") + 1) % TOPICS[MESSAGES]
    town.put(rows.event_key(Partition(MESSAGES, other), 1000), rows.EVENT.encode(event))


def two_events_in_the_wrong_order(town: Rows) -> None:
    (one, first), (two, second) = list(town.events_of(MESSAGES, GROUP).items())[1:3]
    town.put(one, rows.EVENT.encode(second))
    town.put(two, rows.EVENT.encode(first))


def an_event_left_out(town: Rows) -> None:
    town.drop(list(town.events_of(MESSAGES, GROUP))[2])


def the_last_event_left_out(town: Rows) -> None:
    town.drop(list(town.events_of(MESSAGES, GROUP))[4])


def all_events_left_out(town: Rows) -> None:
    for key in town.events(MESSAGES):
        town.drop(key)


def a_wrong_predecessor(town: Rows) -> None:
    change_event(town, GROUP, 3, prev_sequence=2)


def a_predecessor_that_is_no_predecessor(town: Rows) -> None:
    change_event(town, GROUP, 3, prev_sequence=4)


def a_second_direct_chat_of_the_same_two(town: Rows) -> None:
    twin = msgspec.structs.replace(rows.CHAT.decode(town.raw(rows.chat_key(DIRECT))), chat_id="chat_twin")
    town.put(rows.chat_key("chat_twin"), rows.CHAT.encode(twin))
    town.put(rows.counter_key("chat_twin"), town.raw(rows.counter_key(EMPTY)))
    for user_id in (ANN, BOB):
        _put_member(town, "chat_twin", user_id, Role.MEMBER)


def a_direct_chat_of_three(town: Rows) -> None:
    _put_member(town, DIRECT, CID, Role.MEMBER)
    _change_chat(town, DIRECT, member_count=3)


def a_direct_chat_that_the_index_forgot(town: Rows) -> None:
    town.drop(rows.pair_row_key(pair_key(ANN, BOB)))


def an_index_that_names_a_group(town: Rows) -> None:
    town.put(rows.pair_row_key(pair_key(BOB, CID)), rows.TEXT.encode(GROUP))


def an_index_that_names_the_chat_of_others(town: Rows) -> None:
    town.put(rows.pair_row_key(pair_key(BOB, CID)), rows.TEXT.encode(DIRECT))


def a_group_without_an_owner(town: Rows) -> None:
    _put_member(town, GROUP, ANN, Role.ADMIN)


def a_group_with_two_owners(town: Rows) -> None:
    _put_member(town, GROUP, BOB, Role.OWNER)


def a_wrong_number_of_members(town: Rows) -> None:
    _change_chat(town, GROUP, member_count=4)


def a_group_above_the_cap(town: Rows) -> None:
    for number in range(98):
        _put_member(town, GROUP, f"user_{number:03}", Role.MEMBER)
    _change_chat(town, GROUP, member_count=101)


def a_sixth_session(town: Rows) -> None:
    for number in range(5):
        put_session(town, f"sess_{number}", device_id=f"device_{number}")


def two_sessions_of_one_device(town: Rows) -> None:
    put_session(town, "sess_twin")


def two_users_of_one_phone(town: Rows) -> None:
    cid = rows.USER.decode(town.raw(rows.user_key(CID)))
    town.put(rows.user_key(CID), rows.USER.encode(msgspec.structs.replace(cid, phone_number=PHONES[ANN])))


def a_phone_of_nobody(town: Rows) -> None:
    town.put(rows.phone_key(phone_hash("+4930123456")), rows.TEXT.encode("user_ghost"))


def a_refresh_token_in_clear(town: Rows) -> None:
    put_session(town, f"sess_{BOB}", of=BOB, refresh_digest=f"sess_{BOB}.{'A' * 43}")


def a_previous_refresh_token_in_clear(town: Rows) -> None:
    put_session(town, f"sess_{BOB}", of=BOB, previous_digest=f"sess_{BOB}.{'A' * 43}")


def a_code_in_clear(town: Rows) -> None:
    _change_code(town, mac="123456")


def a_code_that_is_not_sealed(town: Rows) -> None:
    _change_code(town, sealed=b"123456")


def an_event_of_a_chat_that_is_not_there(town: Rows) -> None:
    key, event = next(iter(town.events_of(CHATS, GROUP).items()))
    assert event.value is not None
    value = event.value.replace(GROUP.encode(), b"chat_ghost")
    town.put(key, rows.EVENT.encode(EventRow(b"chat_ghost", value, event.headers, event.timestamp_ms)))


def a_mark_beyond_the_counter(town: Rows) -> None:
    town.change_standing(EMPTY, published_through=1)
    town.put(slot(EMPTY, 1), tombstone(EMPTY, 1))


def unpublished_and_not_marked(town: Rows) -> None:
    town.change_standing(EMPTY, allocated=2)


def unpublished_and_not_listed(town: Rows) -> None:
    town.change_standing(EMPTY, allocated=2, dirty_at_ms=1)


def a_chat_missing_in_a_users_list(town: Rows) -> None:
    town.drop(rows.user_chat_key(BOB, GROUP))


def a_foreign_chat_in_a_users_list(town: Rows) -> None:
    town.put(rows.user_chat_key(CID, DIRECT), b"")


def members_of_nothing(town: Rows) -> None:
    _put_member(town, "chat_ghost", ANN, Role.MEMBER)


def a_session_missing_in_a_users_list(town: Rows) -> None:
    town.drop(rows.user_session_key(BOB, f"sess_{BOB}"))


def a_foreign_session_in_a_users_list(town: Rows) -> None:
    town.put(rows.user_session_key(BOB, f"sess_{CID}"), b"")


DAMAGES: dict[str, tuple[Damage, ...]] = {
    "I2": (a_second_message_of_the_same_id, a_key_gone_before_its_time),
    "I4": (a_watermark_beyond_the_end,),
    "I5": (a_lost_counter, a_counter_of_nobody, messages_of_nobody),
    "I6": (an_overwritten_message,),
    "I9": (a_counter_below_its_slots,),
    "I10": (more_messages_than_the_counter_says,),
    "I11": (a_key_of_another_message, a_key_of_a_message_that_is_gone, a_key_of_somebody_else),
    "I13": (a_slot_that_says_it_is_another, a_slot_zero),
    "I14": (a_hole_below_the_published_mark, a_lost_end_below_the_published_mark),
    "I17": (an_event_of_a_message_that_was_sealed, an_event_that_says_something_else, a_record_that_is_no_event),
    "I34": (a_record_in_another_partition,),
    "I36": (two_events_in_the_wrong_order, an_event_left_out),
    "R8": (a_second_direct_chat_of_the_same_two,),
    "R9": (
        a_direct_chat_of_three,
        a_direct_chat_that_the_index_forgot,
        an_index_that_names_a_group,
        an_index_that_names_the_chat_of_others,
    ),
    "R10": (a_group_without_an_owner, a_group_with_two_owners),
    "R11": (a_wrong_number_of_members, a_group_above_the_cap),
    "R15": (a_sixth_session, two_sessions_of_one_device),
    "R16": (two_users_of_one_phone, a_phone_of_nobody),
    "R18": (
        a_refresh_token_in_clear,
        a_previous_refresh_token_in_clear,
        a_code_in_clear,
        a_code_that_is_not_sealed,
    ),
    "R21": (an_event_of_a_chat_that_is_not_there,),
    "D1": (a_mark_beyond_the_counter,),
    "D2": (the_last_event_left_out, all_events_left_out),
    "D3": (unpublished_and_not_marked, unpublished_and_not_listed),
    "D4": (a_wrong_predecessor, a_predecessor_that_is_no_predecessor),
    "D5": (
        a_chat_missing_in_a_users_list,
        a_foreign_chat_in_a_users_list,
        members_of_nothing,
        a_session_missing_in_a_users_list,
        a_foreign_session_in_a_users_list,
    ),
}


def _change_key(town: Rows, key: bytes, **fields: object) -> None:
    changed: Key = msgspec.structs.replace(rows.KEY.decode(town.raw(key)), **fields)
    town.put(key, rows.KEY.encode(changed))


def change_event(town: Rows, chat_id: str, number: int, **payload: object) -> None:
    key, event = list(town.events_of(MESSAGES, chat_id).items())[number]
    body = msgspec.json.decode(event.value or b"")
    body["payload"].update(payload)
    value = msgspec.json.encode(body)
    town.put(key, rows.EVENT.encode(EventRow(event.key, value, event.headers, event.timestamp_ms)))


def _change_chat(town: Rows, chat_id: str, **fields: object) -> None:
    changed: Chat = msgspec.structs.replace(rows.CHAT.decode(town.raw(rows.chat_key(chat_id))), **fields)
    town.put(rows.chat_key(chat_id), rows.CHAT.encode(changed))


def _change_code(town: Rows, **fields: object) -> None:
    key = rows.code_key(phone_hash(PHONES[ANN]))
    changed: Code = msgspec.structs.replace(rows.CODE.decode(town.raw(key)), **fields)
    town.put(key, rows.CODE.encode(changed))


def _put_member(town: Rows, chat_id: str, user_id: str, role: Role) -> None:
    row: Membership = membership(chat_id, user_id, role)
    town.put(rows.member_key(chat_id, user_id), rows.MEMBERSHIP.encode(row))
    town.put(rows.user_chat_key(user_id, chat_id), b"")


def put_session(town: Rows, session_id: str, *, of: str = ANN, **fields: object) -> None:
    model = rows.SESSION.decode(town.raw(rows.session_key(f"sess_{of}")))
    session: Session = msgspec.structs.replace(model, session_id=session_id, **fields)
    town.put(rows.session_key(session_id), rows.SESSION.encode(session))
    town.put(rows.user_session_key(of, session_id), b"")
