"""At least one violation of each invariant, on DynamoDB and Kafka: rows changed and records written directly.

Each has a chat of its own, with three messages, and returns the subject that a check must name. So all of them fit
into one store, and one check finds them all.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from seriatim.domain.account import phone_hash
from seriatim.domain.chat import ChatType
from seriatim.domain.events import encode_message, message_persisted
from seriatim.domain.message import Message, content_digest
from seriatim.domain.sharding import partition as partition_of
from seriatim.engines.dynamodb import store as tables
from seriatim.ports.event_log import CHATS, MESSAGES, Record
from seriatim.ports.message_log import Allocation, Entry
from tests.unit.operations.populated_store import (
    ANN,
    BOB,
    CID,
    DIRECT,
    EMPTY,
    GROUP,
    PHONES,
    T_S,
    TOPICS,
    chat_of,
    session_of,
)
from tests.unit.operations.shared_store import PopulatedSharedStore

Violation = Callable[[PopulatedSharedStore, str], Awaitable[str]]


async def a_key_gone_before_its_time(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.drop(tables.KEYS, await _key_of(populated, chat_id, 2))
    return f"{chat_id} #2"


async def a_second_message_of_the_same_id(populated: PopulatedSharedStore, chat_id: str) -> str:
    first = await _key_of(populated, chat_id, 1)
    await populated.rows.drop(tables.KEYS, await _key_of(populated, chat_id, 3))
    await populated.rows.change(tables.MESSAGES, _slot(chat_id, 3), client_message_id=first["client_message_id"])
    return f"{chat_id} #3"


async def a_watermark_beyond_the_end(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.log.acknowledge(BOB, chat_id, sequence=4, now_ms=populated.clock.now_ms(), timeout_s=T_S)
    return f"{chat_id} {BOB}"


async def a_lost_counter(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.drop(tables.COUNTERS, {"chat_id": chat_id})
    return chat_id


async def a_counter_of_nobody(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.change(tables.COUNTERS, {"chat_id": EMPTY}, chat_id="counter_ghost")
    return "counter_ghost"


async def messages_of_nobody(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.change(tables.MESSAGES, _slot(chat_id, 1), chat_id="message_ghost")
    return "message_ghost"


async def an_overwritten_message(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.change(tables.MESSAGES, _slot(chat_id, 2), message_id="msg_other")
    await populated.rows.change(tables.KEYS, await _key_of(populated, chat_id, 2), message_id="msg_other")
    return f"{chat_id} #2 at {await _place_of(populated, chat_id, 2)}"


async def a_counter_below_its_slots(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.change(tables.COUNTERS, {"chat_id": chat_id}, sequence_counter=2, published_through=2)
    return chat_id


async def more_messages_than_the_counter_says(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.change(tables.MESSAGES, _slot(chat_id, 1), sequence=0, created_at="", client_message_id="zero")
    return chat_id


async def a_key_of_another_message(populated: PopulatedSharedStore, chat_id: str) -> str:
    key = await _key_of(populated, chat_id, 2)
    await populated.rows.change(tables.KEYS, key, content_sha256="0" * 64)
    return f"{chat_id} #2 {key['client_message_id']}"


async def a_slot_below_zero(populated: PopulatedSharedStore, chat_id: str) -> str:
    await _seal(populated, chat_id, 1, sequence=-5)
    return f"{chat_id} #-5"


async def a_hole_below_the_published_mark(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.drop(tables.MESSAGES, _slot(chat_id, 2))
    return f"{chat_id} #2"


async def an_event_of_a_message_that_was_sealed(populated: PopulatedSharedStore, chat_id: str) -> str:
    await _seal(populated, chat_id, 2)
    return f"{chat_id} #2 at {await _place_of(populated, chat_id, 2)}"


async def an_event_that_says_something_else(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.change(tables.MESSAGES, _slot(chat_id, 2), content="other")
    await populated.rows.change(
        tables.KEYS, await _key_of(populated, chat_id, 2), content_sha256=content_digest("other")
    )
    return f"{chat_id} #2 at {await _place_of(populated, chat_id, 2)}"


async def a_record_that_is_no_event(populated: PopulatedSharedStore, chat_id: str) -> str:
    return await _publish(populated, MESSAGES, chat_id, b"{")


async def a_record_in_another_partition(populated: PopulatedSharedStore, chat_id: str) -> str:
    first = await _message(populated, chat_id, 1)
    other = (partition_of(chat_id, TOPICS[MESSAGES]) + 1) % TOPICS[MESSAGES]
    return await _publish(populated, MESSAGES, chat_id, _event(first, prev_sequence=0), partition=other)


async def an_event_left_out(populated: PopulatedSharedStore, chat_id: str) -> str:
    """4 and 5 are stored, and only 5 is reported of."""
    await _store(populated, chat_id, 4)
    last = await _store(populated, chat_id, 5)
    at = await _publish(populated, MESSAGES, chat_id, _event(last, prev_sequence=None))
    return f"{chat_id} #5 at {at}"


async def marked_and_never_published(populated: PopulatedSharedStore, chat_id: str) -> str:
    await _store(populated, chat_id, 4)
    assert await populated.log.flush(chat_id, published_through=4, published_message=4, timeout_s=T_S)
    return f"{chat_id} #4"


async def a_wrong_predecessor(populated: PopulatedSharedStore, chat_id: str) -> str:
    at = await _publish(populated, MESSAGES, chat_id, _event(await _message(populated, chat_id, 3), prev_sequence=1))
    return f"{chat_id} #3 at {at}"


async def an_event_of_a_chat_that_is_not_there(populated: PopulatedSharedStore, chat_id: str) -> str:
    found = [record for record in await populated.raw.stored(CHATS) if record.key == chat_id.encode()]
    value = (found[0].value or b"").replace(chat_id.encode(), b"event_ghost")
    return await _publish(populated, CHATS, "event_ghost", value)


async def a_second_direct_chat_of_the_same_two(populated: PopulatedSharedStore, chat_id: str) -> str:
    twin = "chat_twin"
    await populated.rows.change(tables.CHATS, {"chat_id": DIRECT}, chat_id=twin)
    await populated.rows.change(tables.COUNTERS, {"chat_id": EMPTY}, chat_id=twin)
    for user_id in (ANN, BOB):
        await populated.rows.change(tables.MEMBERSHIPS, {"chat_id": DIRECT, "user_id": user_id}, chat_id=twin)
    return twin


async def a_direct_chat_that_the_index_forgot(populated: PopulatedSharedStore, chat_id: str) -> str:
    now_ms = populated.clock.now_ms()
    await populated.catalog.create_direct(
        chat_of("chat_forgotten", ChatType.DIRECT, now_ms), CID, now_ms=now_ms, timeout_s=T_S
    )
    await populated.rows.drop(tables.PAIRS, {"pair_key": f"{ANN}#{CID}"})
    return "chat_forgotten"


async def an_index_that_names_a_group(populated: PopulatedSharedStore, chat_id: str) -> str:
    row = {"pair_key": f"{BOB}#{CID}", "chat_id": chat_id, "created_at": ""}
    await populated.rows.put(tables.PAIRS, {name: {"S": value} for name, value in row.items()})
    return chat_id


async def a_group_with_two_owners(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.change(tables.MEMBERSHIPS, {"chat_id": chat_id, "user_id": BOB}, role="owner")
    return chat_id


async def a_wrong_number_of_members(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.change(tables.CHATS, {"chat_id": chat_id}, member_count=4)
    return chat_id


async def a_sixth_session(populated: PopulatedSharedStore, chat_id: str) -> str:
    now_ms = populated.clock.now_ms()
    for number in range(5):
        more = session_of(CID, now_ms, session_id=f"sess_more_{number}", device_id=f"device_more_{number}")
        await populated.accounts.open_session(more, timeout_s=T_S)
    return CID


async def two_sessions_of_one_device(populated: PopulatedSharedStore, chat_id: str) -> str:
    twin = session_of(ANN, populated.clock.now_ms(), session_id="sess_twin")
    await populated.accounts.open_session(twin, timeout_s=T_S)
    return ANN


async def two_users_of_one_phone(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.change(tables.USERS, {"user_id": CID}, phone_number=PHONES[ANN])
    return CID


async def a_refresh_token_in_clear(populated: PopulatedSharedStore, chat_id: str) -> str:
    session_id = f"sess_{BOB}"
    await populated.rows.change(
        tables.SESSIONS, {"session_id": session_id}, refresh_token_hash=f"{session_id}.{'A' * 43}"
    )
    return session_id


async def a_code_in_clear(populated: PopulatedSharedStore, chat_id: str) -> str:
    code = await populated.accounts.code(phone_hash(PHONES[ANN]), timeout_s=T_S)
    assert code is not None
    await populated.rows.change(tables.CODES, {"phone_hash": code.phone_hash}, otp_mac="123456")
    return f"code of phone {code.phone_hash[:8]}"


async def a_mark_beyond_the_counter(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.change(tables.COUNTERS, {"chat_id": chat_id}, published_through=4)
    return chat_id


async def unpublished_and_not_marked(populated: PopulatedSharedStore, chat_id: str) -> str:
    unmarked = {"dirty_at": None, "dirty_bucket": None}
    await populated.rows.change(
        tables.COUNTERS, {"chat_id": chat_id}, sequence_counter=9, published_through=3, **unmarked
    )
    return chat_id


async def unpublished_and_not_listed(populated: PopulatedSharedStore, chat_id: str) -> str:
    """The index is made of two attributes: without one of them it does not name the row."""
    await populated.log.allocate(
        chat_id, 1, published_through=3, published_message=3, now_ms=populated.clock.now_ms(), timeout_s=T_S
    )
    await populated.rows.change(tables.COUNTERS, {"chat_id": chat_id}, dirty_bucket=None)
    return chat_id


async def members_of_nothing(populated: PopulatedSharedStore, chat_id: str) -> str:
    await populated.rows.change(tables.MEMBERSHIPS, {"chat_id": GROUP, "user_id": BOB}, chat_id="member_ghost")
    return f"{BOB} member_ghost"


VIOLATIONS: dict[str, tuple[Violation, ...]] = {
    "I2": (a_key_gone_before_its_time, a_second_message_of_the_same_id),
    "I4": (a_watermark_beyond_the_end,),
    "I5": (a_lost_counter, a_counter_of_nobody, messages_of_nobody),
    "I6": (an_overwritten_message,),
    "I9": (a_counter_below_its_slots,),
    "I10": (more_messages_than_the_counter_says,),
    "I11": (a_key_of_another_message,),
    "I13": (a_slot_below_zero,),
    "I14": (a_hole_below_the_published_mark,),
    "I17": (an_event_of_a_message_that_was_sealed, an_event_that_says_something_else, a_record_that_is_no_event),
    "I34": (a_record_in_another_partition,),
    "I36": (an_event_left_out,),
    "R8": (a_second_direct_chat_of_the_same_two,),
    "R9": (a_direct_chat_that_the_index_forgot, an_index_that_names_a_group),
    "R10": (a_group_with_two_owners,),
    "R11": (a_wrong_number_of_members,),
    "R15": (a_sixth_session, two_sessions_of_one_device),
    "R16": (two_users_of_one_phone,),
    "R18": (a_refresh_token_in_clear, a_code_in_clear),
    "R21": (an_event_of_a_chat_that_is_not_there,),
    "D1": (a_mark_beyond_the_counter,),
    "D2": (marked_and_never_published,),
    "D3": (unpublished_and_not_marked, unpublished_and_not_listed),
    "D4": (a_wrong_predecessor,),
    "D5": (members_of_nothing,),
}

# --- helpers ----------------------------------------------------------------------------------------------------------


def _slot(chat_id: str, sequence: int) -> dict[str, object]:
    return {"chat_id": chat_id, "sequence": sequence}


async def _message(populated: PopulatedSharedStore, chat_id: str, sequence: int) -> Message:
    page = await populated.log.read(chat_id, after=sequence - 1, limit=1, timeout_s=T_S)
    [found] = page.slots
    assert isinstance(found, Message)
    return found


async def _key_of(populated: PopulatedSharedStore, chat_id: str, sequence: int) -> dict[str, object]:
    message = await _message(populated, chat_id, sequence)
    return {"chat_id": chat_id, "client_message_id": message.client_message_id}


async def _seal(populated: PopulatedSharedStore, chat_id: str, at: int, **fields: object) -> None:
    await populated.rows.change(tables.MESSAGES, _slot(chat_id, at), kind="sealed", **fields)


async def _store(populated: PopulatedSharedStore, chat_id: str, sequence: int) -> Message:
    """As the pipeline does, up to the point where it would publish."""
    now_ms = populated.clock.now_ms()
    allocated = await populated.log.allocate(
        chat_id, 1, published_through=3, published_message=3, now_ms=now_ms, timeout_s=T_S
    )
    assert isinstance(allocated, Allocation)
    assert allocated.last == sequence
    model = await _message(populated, chat_id, 3)
    id = f"{0xF0000000 + sequence:08x}{model.client_message_id[8:]}"
    message = msgspec.structs.replace(model, sequence=sequence, message_id=f"msg_{id}", client_message_id=id)
    entry = Entry(message=message, content_sha256=content_digest(message.content), expires_at_s=now_ms // 1000 + 1000)
    assert await populated.log.persist(chat_id, [entry], [ANN], token=id, now_s=now_ms // 1000, timeout_s=T_S) is None
    return message


async def _events(populated: PopulatedSharedStore, chat_id: str) -> list[Record]:
    return [record for record in await populated.raw.stored(MESSAGES) if record.key == chat_id.encode()]


async def _place_of(populated: PopulatedSharedStore, chat_id: str, sequence: int) -> str:
    record = (await _events(populated, chat_id))[sequence - 1]
    return f"{MESSAGES}/{record.partition.number}@{record.offset}"


def _event(message: Message, *, prev_sequence: int | None) -> bytes:
    return encode_message(
        message_persisted(
            message,
            prev_sequence=prev_sequence,
            members_version=1,
            origin_connection_id=None,
            producer_id="ingest-1",
            trace_id="",
            event_time=message.created_at,
        )
    )


async def _publish(
    populated: PopulatedSharedStore, topic: str, key: str, value: bytes, *, partition: int | None = None
) -> str:
    number = partition_of(key, TOPICS[topic]) if partition is None else partition
    offset = await asyncio.to_thread(populated.publish, topic, key.encode(), value, partition=number)
    return f"{topic}/{number}@{offset}"
