"""The format of a folder: rows of a released format are read for ever, and keys sort as the tables need it."""

from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.message import TEXT, Message, Sealed
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.rows import CounterRow, EventRow, WatermarkRow
from seriatim.ports.event_log import Partition
from seriatim.ports.message_log import ChatCounter, Key

MESSAGE = Message(
    message_id="msg_1",
    chat_id="chat_1",
    sequence=258,
    sender_id="ann",
    client_message_id="key-1",
    content="grüezi",
    content_type=TEXT,
    created_at="2026-01-30T14:30:00.000Z",
)
SEALED = Sealed(chat_id="chat_1", sequence=3, created_at="2026-01-30T14:30:00.000Z")


def test_rows_of_format_1_are_still_read() -> None:
    """These bytes lie in folders out there. If this test fails, raise the format and convert; do not edit the bytes."""
    message = bytes.fromhex(GOLDEN_MESSAGE)
    assert rows.encode_slot(MESSAGE) == message
    assert rows.decode_slot(message) == MESSAGE
    sealed = bytes.fromhex(GOLDEN_SEALED)
    assert rows.encode_slot(SEALED) == sealed
    assert rows.decode_slot(sealed) == SEALED
    counter = CounterRow(
        counter=ChatCounter(
            allocated=5, published_through=4, published_message=None, members_version=2, dirty_at_ms=1_000
        )
    )
    assert rows.COUNTER.encode(counter).hex() == GOLDEN_COUNTER
    assert rows.COUNTER.decode(bytes.fromhex(GOLDEN_COUNTER)) == counter
    event = EventRow(b"chat_1", b"\xff", (("trace", b"\0"),), 7)
    assert rows.EVENT.encode(event).hex() == GOLDEN_EVENT
    assert rows.EVENT.decode(bytes.fromhex(GOLDEN_EVENT)) == event
    assert rows.WATERMARK.encode(WatermarkRow(9, 8)).hex() == "920908"
    assert rows.slot_key(rows.slots_prefix("chat_1"), 258).hex() == "530006636861745f310000000000000102"
    assert rows.event_key(Partition("t", 3), 1).hex() == "45000174000000030000000000000001"


def test_a_value_comes_back_as_it_was() -> None:
    key = Key(
        client_message_id="k",
        message_id="m",
        sequence=1,
        sender_id="s",
        content_sha256="c",
        created_at="t",
        expires_at_s=2,
    )
    chat = Chat(
        chat_id="c",
        chat_type=ChatType.GROUP,
        name=None,
        created_by="a",
        created_at="",
        updated_at="",
        member_count=1,
    )
    assert rows.KEY.decode(rows.KEY.encode(key)) == key
    assert rows.CHAT.decode(rows.CHAT.encode(chat)) == chat


def test_slots_of_a_chat_sort_by_number_and_lie_together() -> None:
    numbers = [1, 2, 255, 256, 65_536, 2**53 - 1]
    prefix = rows.slots_prefix("chat_1")
    keys = [rows.slot_key(prefix, number) for number in numbers]
    assert keys == sorted(keys)
    assert all(prefix <= key < rows.after(prefix) for key in keys)
    assert [rows.last_number(key) for key in keys] == numbers
    for other in ("chat_", "chat_2", "chat_11", "c"):
        assert not rows.slots_prefix(other).startswith(prefix)


def test_no_two_pairs_of_ids_share_a_key() -> None:
    assert rows.member_key("a", "bc") != rows.member_key("ab", "c")
    assert rows.member_key("a\0", "b") != rows.member_key("a", "\0b")
    assert not rows.member_key("ab", "c").startswith(rows.members_prefix("a"))


def test_dirty_rows_sort_by_time_and_name_their_chat() -> None:
    keys = [rows.dirty_key(5, "z"), rows.dirty_key(300, "a"), rows.dirty_key(70_000, "b")]
    assert keys == sorted(keys)
    assert [rows.split_dirty_key(key) for key in keys] == [(5, "z"), (300, "a"), (70_000, "b")]


def test_every_table_has_a_letter_of_its_own() -> None:
    assert len(set(rows.TABLES.values())) == len(rows.TABLES)
    assert all(len(letter) == 1 for letter in rows.TABLES.values())


GOLDEN_MESSAGE = (
    "6d88aa6d6573736167655f6964a56d73675f31a7636861745f6964a6636861745f31a873657175656e6365cd0102a973"
    "656e6465725f6964a3616e6eb1636c69656e745f6d6573736167655f6964a56b65792d31a7636f6e74656e74a76772c3"
    "bc657a69ac636f6e74656e745f74797065aa746578742f706c61696eaa637265617465645f6174b8323032362d30312d"
    "33305431343a33303a30302e3030305a"
)
GOLDEN_SEALED = (
    "7383a7636861745f6964a6636861745f31a873657175656e636503aa637265617465645f6174b8323032362d30312d33"
    "305431343a33303a30302e3030305a"
)
GOLDEN_COUNTER = (
    "83a87374616e64696e6785a9616c6c6f636174656405b17075626c69736865645f7468726f75676804b17075626c6973"
    "6865645f6d657373616765c0af6d656d626572735f76657273696f6e02ab64697274795f61745f6d73cd03e8af726563"
    "6f76657265645f61745f6d73c0ae7265636f76657265645f66726f6dc0"
)
GOLDEN_EVENT = "94c406636861745f31c401ff9192a57472616365c4010007"
