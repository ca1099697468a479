"""The published JSON Schemas and the code agree (S37): on what we write, on what is required, on every type."""

import copy
import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from seriatim.domain.chat import Chat, ChatType, Role
from seriatim.domain.events import (
    BadEvent,
    ChangeType,
    chat_created,
    decode,
    encode_message,
    membership_changed,
    message_persisted,
)
from seriatim.domain.message import Message

Json = dict[str, Any]

TIME = "2026-01-30T14:30:00.000Z"
ENVELOPE = "event-envelope.v1.json"
PAYLOADS = {
    "MessagePersisted": "message-persisted.v1.json",
    "MembershipChanged": "membership-changed.v1.json",
    "ChatCreated": "chat-created.v1.json",
}
# Required of writers; readers forgive their absence because ADR-003 shows events without them.
FORGIVEN = {("MembershipChanged", "changed_at"), ("ChatCreated", "created_at")}


def _schema(name: str) -> Json:
    loaded: Json = json.loads((resources.files("seriatim.domain") / "schemas" / name).read_text())
    return loaded


SCHEMAS = {name: _schema(name) for name in (ENVELOPE, *PAYLOADS.values())}
REGISTRY: Registry[Any] = Registry().with_resources(
    (schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS.values()
)
VALIDATOR = Draft202012Validator(SCHEMAS[ENVELOPE], registry=REGISTRY)


def _written() -> Iterator[bytes]:
    """Events as we write them, with everything known and with everything optional unknown."""
    message = Message(
        message_id="msg_1",
        chat_id="chat_1",
        sequence=2,
        sender_id="user_1",
        client_message_id="550e8400-e29b-41d4-a716-446655440000",
        content="hello",
        content_type="text/plain",
        created_at=TIME,
    )
    for number, connection in ((1, "conn_1"), (None, None)):
        yield encode_message(
            message_persisted(
                message,
                prev_sequence=number,
                members_version=number,
                origin_connection_id=connection,
                producer_id="ingest-0",
                trace_id="t",
                event_time=TIME,
            )
        )
    for change_type in ChangeType:
        for role in Role:
            yield membership_changed(
                event_id="evt_1",
                chat_id="chat_1",
                user_id="user_2",
                change_type=change_type,
                role=role,
                changed_by="user_1",
                changed_at=TIME,
                member_count_after=None if role is Role.MEMBER else 2,
                producer_id="api-0",
                trace_id="t",
                event_time=TIME,
            )
    for chat_type, name in ((ChatType.GROUP, "team"), (ChatType.DIRECT, None)):
        chat = Chat(
            chat_id="chat_1",
            chat_type=chat_type,
            name=name,
            created_by="user_1",
            created_at=TIME,
            updated_at=TIME,
            member_count=2,
        )
        yield chat_created(
            chat, event_id="evt_2", initial_members=("user_1", "user_2"), producer_id="a", trace_id="t", event_time=TIME
        )


EVENTS: list[Json] = [json.loads(value) for value in _written()]
ONE_OF_EACH: dict[str, Json] = {event["event_type"]: event for event in reversed(EVENTS)}
FIELDS = [
    (event_type, place, name)
    for event_type, file in PAYLOADS.items()
    for place, schema in (("envelope", SCHEMAS[ENVELOPE]), ("payload", SCHEMAS[file]))
    for name in schema["properties"]
    if name != "$schema"
]


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_schema_is_a_valid_schema_that_names_itself(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["$id"] == "https://messaging.internal/schemas/" + name.replace(".v1.json", "/v1.json")


@pytest.mark.parametrize("event", EVENTS)
def test_s37_every_event_is_valid_and_described_in_full(event: Json) -> None:
    VALIDATOR.validate(event)
    payload = SCHEMAS[PAYLOADS[event["event_type"]]]
    assert set(event) == set(SCHEMAS[ENVELOPE]["properties"]) - {"$schema"}
    assert set(event["payload"]) == set(payload["properties"])


@pytest.mark.parametrize(("event_type", "place", "name"), FIELDS)
def test_s37_schema_and_reader_agree_on_what_may_be_missing(event_type: str, place: str, name: str) -> None:
    event = copy.deepcopy(ONE_OF_EACH[event_type])
    del (event if place == "envelope" else event["payload"])[name]
    reads = _reads(event) and (event_type, name) not in FORGIVEN
    assert VALIDATOR.is_valid(event) == reads


@pytest.mark.parametrize(("event_type", "place", "name"), FIELDS)
def test_s37_schema_and_reader_agree_on_every_type(event_type: str, place: str, name: str) -> None:
    # That these two match the record's key is a rule no schema can state.
    text = "chat_1" if name in ("partition_key", "chat_id") else "text"
    values: list[object] = [None, True, -1, 0, 1, 2**53, 1.5, text, [], ["text"], [1], {}]
    for value in values:
        event = copy.deepcopy(ONE_OF_EACH[event_type])
        (event if place == "envelope" else event["payload"])[name] = value
        reads = _reads(event) and not (value is None and (event_type, name) in FORGIVEN)
        assert VALIDATOR.is_valid(event) == reads, f"the reader {'takes' if reads else 'refuses'} {value!r}"


@pytest.mark.parametrize(("event_type", "name"), sorted(FORGIVEN))
def test_s37_readers_forgive_what_only_writers_owe(event_type: str, name: str) -> None:
    event = copy.deepcopy(ONE_OF_EACH[event_type])
    del event["payload"][name]
    assert not VALIDATOR.is_valid(event)
    assert _reads(event)


@pytest.mark.parametrize("event_type", PAYLOADS)
def test_a_payload_of_another_type_is_invalid(event_type: str) -> None:
    for other in PAYLOADS:
        event = {**ONE_OF_EACH[event_type], "payload": ONE_OF_EACH[other]["payload"]}
        assert VALIDATOR.is_valid(event) == _reads(event) == (other == event_type)


def _reads(event: Json) -> bool:
    try:
        decode(b"chat_1", json.dumps(event).encode())
    except BadEvent:
        return False
    return True
