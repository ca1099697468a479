"""A violation of each invariant that `check` examines: rows of a populated data folder, changed directly."""

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
from tests.unit.operations.populated_store import ANN, BOB, CID, DIRECT, EMPTY, GROUP, PHONES, TOPICS, membership

Violation = Callable[["Rows"], None]


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


# --- one violation each -----------------------------------------------------------------------------------------------


def a_second_message_of_the_same_id(populated: Rows) -> None:
    """Published and counted like any other: only its id is not its own."""
    first, last = populated.message(GROUP, 1), populated.message(GROUP, 5)
    populated.drop(key_of(last))
    populated.change_message(GROUP, 5, client_message_id=first.client_message_id)
    change_event(populated, GROUP, 4, client_message_id=first.client_message_id)


def a_key_gone_before_its_time(populated: Rows) -> None:
    populated.drop(key_of(populated.message(GROUP, 3)))


def a_watermark_beyond_the_end(populated: Rows) -> None:
    populated.put(rows.watermark_key(BOB, GROUP), rows.WATERMARK.encode(WatermarkRow(6, 0)))


def a_lost_counter(populated: Rows) -> None:
    populated.drop(rows.counter_key(EMPTY))


def a_counter_of_nobody(populated: Rows) -> None:
    populated.put(rows.counter_key("chat_ghost"), populated.raw(rows.counter_key(EMPTY)))


def messages_of_nobody(populated: Rows) -> None:
    populated.put(slot("chat_ghost", 1), tombstone("chat_ghost", 1))


def an_overwritten_message(populated: Rows) -> None:
    message = populated.message(GROUP, 2)
    populated.change_message(GROUP, 2, message_id="msg_other")
    _change_key(populated, key_of(message), message_id="msg_other")


def a_counter_below_its_slots(populated: Rows) -> None:
    populated.change_standing(GROUP, allocated=4, published_through=4)


def more_messages_than_the_counter_says(populated: Rows) -> None:
    zero = msgspec.structs.replace(populated.message(DIRECT, 1), sequence=0, client_message_id="zero", created_at="")
    populated.put(slot(DIRECT, 0), rows.encode_slot(zero))


def a_key_of_another_message(populated: Rows) -> None:
    _change_key(populated, key_of(populated.message(GROUP, 2)), content_sha256="0" * 64)


def a_key_of_a_message_that_is_gone(populated: Rows) -> None:
    _change_key(populated, key_of(populated.message(GROUP, 2)), sequence=77)


def a_key_of_somebody_else(populated: Rows) -> None:
    _change_key(populated, key_of(populated.message(GROUP, 2)), sender_id=CID)


def a_slot_that_says_it_is_another(populated: Rows) -> None:
    populated.change_message(GROUP, 5, sequence=4)


def a_slot_zero(populated: Rows) -> None:
    populated.put(slot(EMPTY, 0), tombstone(EMPTY, 0))


def a_hole_below_the_published_mark(populated: Rows) -> None:
    populated.drop(slot(GROUP, 3))


def a_lost_end_below_the_published_mark(populated: Rows) -> None:
    populated.drop(slot(GROUP, 5))


def an_event_of_a_message_that_was_sealed(populated: Rows) -> None:
    populated.put(slot(GROUP, 3), tombstone(GROUP, 3))


def an_event_that_says_something_else(populated: Rows) -> None:
    change_event(populated, GROUP, 1, content="what no sender wrote")


def a_record_that_is_no_event(populated: Rows) -> None:
    key, event = list(populated.events_of(MESSAGES, GROUP).items())[4]
    populated.put(key, rows.EVENT.encode(EventRow(event.key, b"{", (), event.timestamp_ms)))


def a_record_in_another_partition(populated: Rows) -> None:
    """As a producer with another partitioner writes it: a repeated event, right in all but its place."""
    key, event = next(iter(populated.events_of(MESSAGES, GROUP).items()))
    other = (int.from_bytes(key[-12:-8], "big") + 1) % TOPICS[MESSAGES]
    populated.put(rows.event_key(Partition(MESSAGES, other), 1000), rows.EVENT.encode(event))


def two_events_in_the_wrong_order(populated: Rows) -> None:
    (one, first), (two, second) = list(populated.events_of(MESSAGES, GROUP).items())[1:3]
    populated.put(one, rows.EVENT.encode(second))
    populated.put(two, rows.EVENT.encode(first))


def an_event_left_out(populated: Rows) -> None:
    populated.drop(list(populated.events_of(MESSAGES, GROUP))[2])


def the_last_event_left_out(populated: Rows) -> None:
    populated.drop(list(populated.events_of(MESSAGES, GROUP))[4])


def all_events_left_out(populated: Rows) -> None:
    for key in populated.events(MESSAGES):
        populated.drop(key)


def a_wrong_predecessor(populated: Rows) -> None:
    change_event(populated, GROUP, 3, prev_sequence=2)


def a_predecessor_that_is_no_predecessor(populated: Rows) -> None:
    change_event(populated, GROUP, 3, prev_sequence=4)


def a_second_direct_chat_of_the_same_two(populated: Rows) -> None:
    twin = msgspec.structs.replace(rows.CHAT.decode(populated.raw(rows.chat_key(DIRECT))), chat_id="chat_twin")
    populated.put(rows.chat_key("chat_twin"), rows.CHAT.encode(twin))
    populated.put(rows.counter_key("chat_twin"), populated.raw(rows.counter_key(EMPTY)))
    for user_id in (ANN, BOB):
        _put_member(populated, "chat_twin", user_id, Role.MEMBER)


def a_direct_chat_of_three(populated: Rows) -> None:
    _put_member(populated, DIRECT, CID, Role.MEMBER)
    _change_chat(populated, DIRECT, member_count=3)


def a_direct_chat_that_the_index_forgot(populated: Rows) -> None:
    populated.drop(rows.pair_row_key(pair_key(ANN, BOB)))


def an_index_that_names_a_group(populated: Rows) -> None:
    populated.put(rows.pair_row_key(pair_key(BOB, CID)), rows.TEXT.encode(GROUP))


def an_index_that_names_the_chat_of_others(populated: Rows) -> None:
    populated.put(rows.pair_row_key(pair_key(BOB, CID)), rows.TEXT.encode(DIRECT))


def a_group_without_an_owner(populated: Rows) -> None:
    _put_member(populated, GROUP, ANN, Role.ADMIN)


def a_group_with_two_owners(populated: Rows) -> None:
    _put_member(populated, GROUP, BOB, Role.OWNER)


def a_wrong_number_of_members(populated: Rows) -> None:
    _change_chat(populated, GROUP, member_count=4)


def a_group_above_the_cap(populated: Rows) -> None:
    for number in range(98):
        _put_member(populated, GROUP, f"user_{number:03}", Role.MEMBER)
    _change_chat(populated, GROUP, member_count=101)


def a_sixth_session(populated: Rows) -> None:
    for number in range(5):
        put_session(populated, f"sess_{number}", device_id=f"device_{number}")


def two_sessions_of_one_device(populated: Rows) -> None:
    put_session(populated, "sess_twin")


def two_users_of_one_phone(populated: Rows) -> None:
    cid = rows.USER.decode(populated.raw(rows.user_key(CID)))
    populated.put(rows.user_key(CID), rows.USER.encode(msgspec.structs.replace(cid, phone_number=PHONES[ANN])))


def a_phone_of_nobody(populated: Rows) -> None:
    populated.put(rows.phone_key(phone_hash("+4930123456")), rows.TEXT.encode("user_ghost"))


def a_refresh_token_in_clear(populated: Rows) -> None:
    put_session(populated, f"sess_{BOB}", of=BOB, refresh_digest=f"sess_{BOB}.{'A' * 43}")


def a_previous_refresh_token_in_clear(populated: Rows) -> None:
    put_session(populated, f"sess_{BOB}", of=BOB, previous_digest=f"sess_{BOB}.{'A' * 43}")


def a_code_in_clear(populated: Rows) -> None:
    _change_code(populated, mac="123456")


def a_code_that_is_not_sealed(populated: Rows) -> None:
    _change_code(populated, sealed=b"123456")


def an_event_of_a_chat_that_is_not_there(populated: Rows) -> None:
    key, event = next(iter(populated.events_of(CHATS, GROUP).items()))
    assert event.value is not None
    value = event.value.replace(GROUP.encode(), b"chat_ghost")
    populated.put(key, rows.EVENT.encode(EventRow(b"chat_ghost", value, event.headers, event.timestamp_ms)))


def a_mark_beyond_the_counter(populated: Rows) -> None:
    populated.change_standing(EMPTY, published_through=1)
    populated.put(slot(EMPTY, 1), tombstone(EMPTY, 1))


def unpublished_and_not_marked(populated: Rows) -> None:
    populated.change_standing(EMPTY, allocated=2)


def unpublished_and_not_listed(populated: Rows) -> None:
    populated.change_standing(EMPTY, allocated=2, dirty_at_ms=1)


def a_chat_missing_in_a_users_list(populated: Rows) -> None:
    populated.drop(rows.user_chat_key(BOB, GROUP))


def a_foreign_chat_in_a_users_list(populated: Rows) -> None:
    populated.put(rows.user_chat_key(CID, DIRECT), b"")


def members_of_nothing(populated: Rows) -> None:
    _put_member(populated, "chat_ghost", ANN, Role.MEMBER)


def a_session_missing_in_a_users_list(populated: Rows) -> None:
    populated.drop(rows.user_session_key(BOB, f"sess_{BOB}"))


def a_foreign_session_in_a_users_list(populated: Rows) -> None:
    populated.put(rows.user_session_key(BOB, f"sess_{CID}"), b"")


VIOLATIONS: dict[str, tuple[Violation, ...]] = {
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


def _change_key(populated: Rows, key: bytes, **fields: object) -> None:
    changed: Key = msgspec.structs.replace(rows.KEY.decode(populated.raw(key)), **fields)
    populated.put(key, rows.KEY.encode(changed))


def change_event(populated: Rows, chat_id: str, number: int, **payload: object) -> None:
    key, event = list(populated.events_of(MESSAGES, chat_id).items())[number]
    body = msgspec.json.decode(event.value or b"")
    body["payload"].update(payload)
    value = msgspec.json.encode(body)
    populated.put(key, rows.EVENT.encode(EventRow(event.key, value, event.headers, event.timestamp_ms)))


def _change_chat(populated: Rows, chat_id: str, **fields: object) -> None:
    changed: Chat = msgspec.structs.replace(rows.CHAT.decode(populated.raw(rows.chat_key(chat_id))), **fields)
    populated.put(rows.chat_key(chat_id), rows.CHAT.encode(changed))


def _change_code(populated: Rows, **fields: object) -> None:
    key = rows.code_key(phone_hash(PHONES[ANN]))
    changed: Code = msgspec.structs.replace(rows.CODE.decode(populated.raw(key)), **fields)
    populated.put(key, rows.CODE.encode(changed))


def _put_member(populated: Rows, chat_id: str, user_id: str, role: Role) -> None:
    row: Membership = membership(chat_id, user_id, role)
    populated.put(rows.member_key(chat_id, user_id), rows.MEMBERSHIP.encode(row))
    populated.put(rows.user_chat_key(user_id, chat_id), b"")


def put_session(populated: Rows, session_id: str, *, of: str = ANN, **fields: object) -> None:
    model = rows.SESSION.decode(populated.raw(rows.session_key(f"sess_{of}")))
    session: Session = msgspec.structs.replace(model, session_id=session_id, **fields)
    populated.put(rows.session_key(session_id), rows.SESSION.encode(session))
    populated.put(rows.user_session_key(of, session_id), b"")
