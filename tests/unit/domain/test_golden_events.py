"""Events of yesterday are read today, and events of today were readable yesterday (S37).

The events and schemas in tests/golden_events are frozen: the logs of deployments hold them. New ones are added beside.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from seriatim.domain.events import ChatCreated, Event, MembershipChanged, MessagePersisted, decode
from seriatim.operations.event_schemas import check
from tests.unit.domain.test_event_schemas import ENVELOPE, EVENTS, PAYLOADS, SCHEMAS, VALIDATOR

Json = dict[str, Any]

FOLDER = Path(__file__).parents[2] / "golden_events"
GOLDEN: dict[str, Json] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))
}
FROZEN: dict[str, Json] = {
    path.name: json.loads(path.read_text()) for path in sorted((FOLDER / "schemas").glob("*.json"))
}
REGISTRY: Registry[Any] = Registry().with_resources(
    (schema["$id"], Resource.from_contents(schema)) for schema in FROZEN.values()
)
OLD_READER = Draft202012Validator(FROZEN[ENVELOPE], registry=REGISTRY)
KINDS: dict[str, type[Event]] = {each.__name__: each for each in (MessagePersisted, MembershipChanged, ChatCreated)}


def read(event: Json) -> Event:
    return decode(event["partition_key"].encode(), json.dumps(event).encode())


@pytest.mark.parametrize("name", GOLDEN)
def test_s37_every_golden_event_is_read_by_the_present_consumer_with_all_that_it_says(name: str) -> None:
    event = GOLDEN[name]
    found = read(event)
    assert type(found) is KINDS[event["event_type"]]
    assert found.envelope.event_version == event["event_version"]
    fields = json.loads(msgspec.json.encode(found))
    fields.update(fields.get("message", {}))
    known = [field for field in event["payload"] if field in FROZEN[PAYLOADS[event["event_type"]]]["properties"]]
    assert {field: fields[field] for field in known} == {field: event["payload"][field] for field in known}


@pytest.mark.parametrize("name", GOLDEN)
def test_every_golden_event_is_valid_for_old_and_for_new_readers(name: str) -> None:
    OLD_READER.validate(GOLDEN[name])
    VALIDATOR.validate(GOLDEN[name])


@pytest.mark.parametrize("event", EVENTS)
def test_s37_every_event_of_today_is_valid_for_old_readers(event: Json) -> None:
    OLD_READER.validate(event)


@pytest.mark.parametrize("event_type", PAYLOADS)
def test_there_is_a_golden_event_with_the_least_and_one_with_the_most_that_version_1_allows(event_type: str) -> None:
    schema = FROZEN[PAYLOADS[event_type]]
    family = PAYLOADS[event_type].removesuffix(".v1.json")
    assert set(GOLDEN[f"{family}.required-only"]["payload"]) == set(schema["required"])
    assert set(GOLDEN[f"{family}.everything"]["payload"]) == set(schema["properties"])
    assert GOLDEN[f"{family}.from-the-future"]["event_version"] > 1


def test_the_present_schemas_are_compatible_with_the_frozen_ones() -> None:
    assert check(FROZEN, SCHEMAS) == []


@pytest.mark.parametrize("name", [str(path.relative_to(FOLDER)) for path in sorted(FOLDER.rglob("*.json"))])
def test_golden_events_and_schemas_are_added_and_never_changed(name: str) -> None:
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()[:16] == DIGESTS[name]


DIGESTS = {
    "chat-created.everything.json": "1cbad82485ac7bc4",
    "chat-created.from-the-future.json": "4349c2adb89c8cd2",
    "chat-created.required-only.json": "b5eef83b67bdf3f4",
    "membership-changed.everything.json": "c041143897ed001c",
    "membership-changed.from-the-future.json": "933df423ca3e7436",
    "membership-changed.required-only.json": "43b13a67ca9e26b7",
    "message-persisted.everything.json": "47bbadadef33ff81",
    "message-persisted.from-the-future.json": "32c72efdb8172d3f",
    "message-persisted.nulls.json": "8b7c8b015cd77cd3",
    "message-persisted.required-only.json": "0f1bf467f2eee458",
    "schemas/chat-created.v1.json": "731d656c1fd165d7",
    "schemas/event-envelope.v1.json": "22d9a83d3a82d634",
    "schemas/membership-changed.v1.json": "917d833053a7e3c7",
    "schemas/message-persisted.v1.json": "df54c43eee2a5fba",
}
