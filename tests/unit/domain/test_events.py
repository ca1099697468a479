"""Events, written and read back: docs/spec/data.md#envelope-and-events (S37)."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType, Role
from seriatim.domain.errors import Refused
from seriatim.domain.events import (
    EVENT_VERSION,
    BadEvent,
    ChangeType,
    ChatCreated,
    Envelope,
    MembershipChanged,
    MessagePersisted,
    chat_created,
    decode,
    encode_message,
    headers,
    membership_changed,
    message_persisted,
)
from seriatim.domain.message import Message

TIME = "2026-01-30T14:30:00.000Z"
LATER = "2026-01-30T14:30:00.250Z"
KEY = b"chat_abc123"

MESSAGE = Message(
    message_id="msg_01HQX",
    chat_id="chat_abc123",
    sequence=47,
    sender_id="user_456",
    client_message_id="550e8400-e29b-41d4-a716-446655440000",
    content='Hello, "world"! 🎉',
    content_type="text/plain",
    created_at=TIME,
)
CHAT = Chat(
    chat_id="chat_abc123",
    chat_type=ChatType.GROUP,
    name="Project Team",
    created_by="user_456",
    created_at=TIME,
    updated_at=TIME,
    member_count=2,
)

# What is in logs today, byte by byte. A change here is a change of what other readers get.
GOLDEN_MESSAGE = (
    '{"event_type":"MessagePersisted","event_id":"evt_01HQX","event_version":1,'
    '"event_time":"2026-01-30T14:30:00.250Z","partition_key":"chat_abc123","producer_id":"ingest-0","trace_id":"t1",'
    '"payload":{"message_id":"msg_01HQX","chat_id":"chat_abc123","sequence":47,"sender_id":"user_456",'
    '"content":"Hello, \\"world\\"! 🎉","content_type":"text/plain","created_at":"2026-01-30T14:30:00.000Z",'
    '"client_message_id":"550e8400-e29b-41d4-a716-446655440000","origin_connection_id":"conn_1",'
    '"prev_sequence":45,"members_version":3}}'
)
GOLDEN_MEMBERSHIP = (
    '{"event_type":"MembershipChanged","event_id":"evt_1","event_version":1,'
    '"event_time":"2026-01-30T14:30:00.250Z","partition_key":"chat_abc123","producer_id":"api-0","trace_id":"t1",'
    '"payload":{"chat_id":"chat_abc123","user_id":"user_789","change_type":"role_changed","role":"admin",'
    '"changed_by":"user_456","changed_at":"2026-01-30T14:30:00.000Z","member_count_after":2}}'
)
GOLDEN_CHAT = (
    '{"event_type":"ChatCreated","event_id":"evt_2","event_version":1,'
    '"event_time":"2026-01-30T14:30:00.250Z","partition_key":"chat_abc123","producer_id":"api-0","trace_id":"t1",'
    '"payload":{"chat_id":"chat_abc123","chat_type":"group","name":"Project Team","created_by":"user_456",'
    '"initial_members":["user_456","user_789"],"created_at":"2026-01-30T14:30:00.000Z","status":"active",'
    '"member_count":2}}'
)
GOLDEN = [GOLDEN_MESSAGE, GOLDEN_MEMBERSHIP, GOLDEN_CHAT]


def test_a_stored_message_becomes_the_golden_event() -> None:
    assert _written_message().decode() == GOLDEN_MESSAGE


def test_a_membership_change_becomes_the_golden_event() -> None:
    value = membership_changed(
        event_id="evt_1",
        chat_id="chat_abc123",
        user_id="user_789",
        change_type=ChangeType.ROLE_CHANGED,
        role=Role.ADMIN,
        changed_by="user_456",
        changed_at=TIME,
        member_count_after=2,
        producer_id="api-0",
        trace_id="t1",
        event_time=LATER,
    )
    assert value.decode() == GOLDEN_MEMBERSHIP


def test_a_new_chat_becomes_the_golden_event() -> None:
    value = chat_created(
        CHAT,
        event_id="evt_2",
        initial_members=["user_456", "user_789"],
        producer_id="api-0",
        trace_id="t1",
        event_time=LATER,
    )
    assert value.decode() == GOLDEN_CHAT


def test_the_golden_message_event_reads_back_as_the_message() -> None:
    assert decode(KEY, GOLDEN_MESSAGE.encode()) == MessagePersisted(
        envelope=_envelope("evt_01HQX", "ingest-0"),
        message=MESSAGE,
        prev_sequence=45,
        members_version=3,
        origin_connection_id="conn_1",
    )


def test_the_golden_membership_event_reads_back() -> None:
    assert decode(KEY, GOLDEN_MEMBERSHIP.encode()) == MembershipChanged(
        envelope=_envelope("evt_1", "api-0"),
        chat_id="chat_abc123",
        user_id="user_789",
        change_type=ChangeType.ROLE_CHANGED,
        role=Role.ADMIN,
        changed_by="user_456",
        changed_at=TIME,
        member_count_after=2,
    )


def test_the_golden_chat_event_reads_back() -> None:
    assert decode(KEY, GOLDEN_CHAT.encode()) == ChatCreated(
        envelope=_envelope("evt_2", "api-0"),
        chat_id="chat_abc123",
        chat_type=ChatType.GROUP,
        name="Project Team",
        created_by="user_456",
        initial_members=("user_456", "user_789"),
        created_at=TIME,
        status="active",
        member_count=2,
    )


def test_publishing_a_message_again_makes_an_event_of_the_same_id() -> None:
    again = encode_message(
        message_persisted(
            MESSAGE,
            prev_sequence=None,
            members_version=None,
            origin_connection_id=None,
            producer_id="ingest-9",
            trace_id="t9",
            event_time="2026-02-01T00:00:00.000Z",
        )
    )
    assert decode(KEY, again).envelope.event_id == decode(KEY, _written_message()).envelope.event_id == "evt_01HQX"


def test_what_is_unknown_is_written_as_null_and_read_as_none() -> None:
    value = encode_message(
        message_persisted(
            MESSAGE,
            prev_sequence=None,
            members_version=None,
            origin_connection_id=None,
            producer_id="ingest-0",
            trace_id="",
            event_time=TIME,
        )
    )
    assert b'"prev_sequence":null' in value
    event = decode(KEY, value)
    assert isinstance(event, MessagePersisted)
    assert (event.prev_sequence, event.members_version, event.origin_connection_id) == (None, None, None)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.integers(1, limits.SEQUENCE_MAX),
    st.none() | st.integers(0, limits.SEQUENCE_MAX),
    st.none() | st.integers(0, limits.SEQUENCE_MAX),
)
def test_any_message_survives_the_log_unchanged(
    content: str, sequence: int, prev_sequence: int | None, members_version: int | None
) -> None:
    fields = {name: getattr(MESSAGE, name) for name in MESSAGE.__struct_fields__}
    message = Message(**{**fields, "content": content, "sequence": sequence})
    event = message_persisted(
        message,
        prev_sequence=prev_sequence,
        members_version=members_version,
        origin_connection_id=None,
        producer_id="ingest-0",
        trace_id="t",
        event_time=TIME,
    )
    assert decode(KEY, encode_message(event)) == event


# --- tolerant readers ------------------------------------------------------------------------------------------------


def test_s37_a_message_event_without_any_optional_field_reads_with_defaults() -> None:
    optional = ["client_message_id", "origin_connection_id", "prev_sequence", "members_version"]
    event = decode(KEY, _changed(GOLDEN_MESSAGE, drop=optional))
    assert isinstance(event, MessagePersisted)
    assert event.message.client_message_id == ""
    assert (event.prev_sequence, event.members_version, event.origin_connection_id) == (None, None, None)
    assert (event.message.sequence, event.message.content) == (47, MESSAGE.content)


def test_s37_a_membership_event_as_adr_003_shows_it_changed_when_it_was_published() -> None:
    event = decode(KEY, _changed(GOLDEN_MEMBERSHIP, drop=["changed_at", "member_count_after"]))
    assert isinstance(event, MembershipChanged)
    assert (event.changed_at, event.member_count_after) == (LATER, None)


def test_s37_a_chat_event_as_adr_003_shows_it_was_created_when_it_was_published() -> None:
    event = decode(KEY, _changed(GOLDEN_CHAT, drop=["created_at", "status", "member_count"]))
    assert isinstance(event, ChatCreated)
    assert (event.created_at, event.status, event.member_count) == (LATER, "active", None)


def test_a_direct_chat_has_a_null_name() -> None:
    event = decode(KEY, _changed(GOLDEN_CHAT, payload={"chat_type": "direct", "name": None}))
    assert isinstance(event, ChatCreated)
    assert (event.chat_type, event.name) == (ChatType.DIRECT, None)


@pytest.mark.parametrize("golden", GOLDEN)
def test_s37_an_unknown_version_is_read_as_version_1_and_can_be_warned_about(golden: str) -> None:
    event = decode(KEY, _changed(golden, envelope={"event_version": 7}))
    assert event.envelope.event_version == 7 != EVENT_VERSION
    assert type(event) is type(decode(KEY, golden.encode()))


@pytest.mark.parametrize("golden", GOLDEN)
def test_s37_unknown_fields_are_ignored(golden: str) -> None:
    unknown: dict[str, object] = {"$schema": "https://x", "new": {"deep": [1, None]}}
    assert decode(KEY, _changed(golden, envelope=unknown, payload=unknown)) == decode(KEY, golden.encode())


@pytest.mark.parametrize("golden", GOLDEN)
def test_the_order_of_fields_does_not_matter(golden: str) -> None:
    event = json.loads(golden)
    event["payload"] = dict(reversed(event["payload"].items()))
    assert decode(KEY, json.dumps(dict(reversed(event.items()))).encode()) == decode(KEY, golden.encode())


# --- bad events ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"not json",
        GOLDEN_MESSAGE.encode()[:-1],
        GOLDEN_MESSAGE.encode() + b"}",
        GOLDEN_MESSAGE.encode("utf-16"),
        GOLDEN_MESSAGE.encode().replace(b"Hello", b"\xff\xfe"),
        GOLDEN_MESSAGE.encode().replace(b"Hello", b"\\ud800"),
        b'{"event_type":"MessagePersisted","deep":' + b"[" * 100_000,
        None,
    ],
)
def test_what_is_not_one_json_event_is_bad(value: bytes | None) -> None:
    with pytest.raises(BadEvent):
        decode(KEY, value)


@pytest.mark.parametrize(
    "envelope",
    [
        {"event_type": "MessageDeleted"},
        {"event_type": "messagepersisted"},
        {"event_type": 1},
        {"event_type": None},
        {"event_version": 0},
        {"event_version": "1"},
        {"event_version": True},
        {"payload": None},
        {"payload": []},
    ],
)
def test_an_unknown_type_or_a_broken_envelope_is_bad(envelope: dict[str, object]) -> None:
    with pytest.raises(BadEvent):
        decode(KEY, _changed(GOLDEN_MESSAGE, envelope=envelope))


@pytest.mark.parametrize("sequence", [0, -1, limits.SEQUENCE_MAX + 1, 1.5, "47", None, True])
def test_a_sequence_is_a_positive_integer(sequence: object) -> None:
    with pytest.raises(BadEvent) as caught:
        decode(KEY, _changed(GOLDEN_MESSAGE, payload={"sequence": sequence}))
    assert "sequence" in caught.value.reason


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, GOLDEN_MESSAGE),
        (b"", GOLDEN_MESSAGE),
        (b"chat_other", GOLDEN_MESSAGE),
        (b"\xff", GOLDEN_MESSAGE),
        (KEY + b"\n", GOLDEN_MESSAGE),
        (KEY, GOLDEN_MESSAGE.replace('"partition_key":"chat_abc123"', '"partition_key":"chat_other"')),
        (KEY, GOLDEN_MESSAGE.replace('"chat_id":"chat_abc123"', '"chat_id":"chat_other"')),
        (KEY, GOLDEN_MEMBERSHIP.replace('"chat_id":"chat_abc123"', '"chat_id":"chat_other"')),
        (KEY, GOLDEN_CHAT.replace('"chat_id":"chat_abc123"', '"chat_id":"chat_other"')),
    ],
)
def test_an_event_under_another_chats_key_is_bad(key: bytes | None, value: str) -> None:
    with pytest.raises(BadEvent):
        decode(key, value.encode())


@given(st.binary() | st.text(st.characters(exclude_categories=["Cs"])).map(str.encode), st.none() | st.binary())
def test_arbitrary_records_raise_nothing_but_bad_event(value: bytes, key: bytes | None) -> None:
    with pytest.raises(BadEvent):
        decode(key, value)


@given(st.sampled_from(GOLDEN), st.integers(0, 1000), st.binary(max_size=4), st.integers(0, 4))
def test_damaged_events_read_or_raise_bad_event(golden: str, at: int, instead: bytes, length: int) -> None:
    value = golden.encode()
    with contextlib.suppress(BadEvent):
        event = decode(KEY, value[:at] + instead + value[at + length :])
        assert event.envelope.partition_key == "chat_abc123"


def test_a_bad_event_is_refused_for_good_and_says_why() -> None:
    bad = BadEvent("no key")
    assert isinstance(bad, Refused)
    assert (str(bad), bad.reason, bad.retryable, bad.trips_breaker) == ("no key", "no key", False, False)


# --- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", GOLDEN)
def test_headers_name_the_type_that_the_value_has(golden: str) -> None:
    assert headers(type(decode(KEY, golden.encode())), "t1") == (
        ("event_type", json.loads(golden)["event_type"].encode()),
        ("trace_id", b"t1"),
    )


def test_only_a_republished_event_is_marked_as_one() -> None:
    assert headers(MessagePersisted, "t1", republished=True)[-1] == ("x-republish", b"1")


def _written_message() -> bytes:
    return encode_message(
        message_persisted(
            MESSAGE,
            prev_sequence=45,
            members_version=3,
            origin_connection_id="conn_1",
            producer_id="ingest-0",
            trace_id="t1",
            event_time=LATER,
        )
    )


def _envelope(event_id: str, producer_id: str) -> Envelope:
    return Envelope(
        event_id=event_id,
        event_version=1,
        event_time=LATER,
        partition_key="chat_abc123",
        producer_id=producer_id,
        trace_id="t1",
    )


def _changed(
    golden: str,
    *,
    envelope: dict[str, object] | None = None,
    payload: dict[str, object] | None = None,
    drop: list[str] | None = None,
) -> bytes:
    event = json.loads(golden)
    event["payload"].update(payload or {})
    event.update(envelope or {})
    for name in drop or []:
        del event["payload"][name]
    return json.dumps(event).encode()
