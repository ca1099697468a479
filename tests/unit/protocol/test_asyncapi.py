"""The AsyncAPI document says what the code does: the same frames, the same fields, examples that are understood."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import seriatim.domain.errors as errors
from seriatim.protocol.asyncapi import ERROR_CODES, document, frame_types
from seriatim.protocol.codec import decode_client_frame
from seriatim.protocol.frames import ClientFrame, CloseReason

DOCUMENT: Any = msgspec.json.decode(msgspec.json.encode(document("1.2.3")))
CLIENT_FRAMES = tuple(str(each.__struct_config__.tag) for each in ClientFrame.__args__)


def schema_of(name: str) -> Any:
    """Resolved against the whole document, as a reader of it would."""
    kind = frame_types()[name].__name__
    return {**DOCUMENT, "$ref": f"#/components/schemas/{kind}"}


def test_every_reference_leads_somewhere() -> None:
    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                found = DOCUMENT
                for step in node["$ref"].removeprefix("#/").split("/"):
                    found = found[step]
            for each in node.values():
                walk(each)
        elif isinstance(node, list):
            for each in node:
                walk(each)

    walk(DOCUMENT)


@pytest.mark.parametrize("name", frame_types())
def test_a_frame_has_exactly_the_fields_of_its_type(name: str) -> None:
    kind = frame_types()[name]
    schema = DOCUMENT["components"]["schemas"][kind.__name__]
    assert list(schema["properties"]) == ["type", *kind.__struct_fields__]
    assert schema["properties"]["type"] == {"enum": [name]}


@pytest.mark.parametrize("name", frame_types())
def test_the_example_of_a_frame_fits_its_schema_and_its_type(name: str) -> None:
    example = DOCUMENT["components"]["messages"][name]["examples"][0]["payload"]
    jsonschema.validate(example, schema_of(name), cls=jsonschema.Draft202012Validator)
    assert isinstance(msgspec.convert(example, frame_types()[name]), frame_types()[name])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**example, "type": "other"}, schema_of(name), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", CLIENT_FRAMES)
def test_the_server_understands_the_example_of_a_client_frame(name: str) -> None:
    example = DOCUMENT["components"]["messages"][name]["examples"][0]["payload"]
    assert isinstance(decode_client_frame(msgspec.json.encode(example)), frame_types()[name])


def test_clients_may_send_exactly_what_the_server_accepts() -> None:
    sent = [name for name in DOCUMENT["operations"] if name.startswith("client_sends_")]
    assert sent == [f"client_sends_{name}" for name in CLIENT_FRAMES]


def test_every_close_reason_is_documented_with_its_code() -> None:
    reasons = DOCUMENT["x-close-reasons"]
    assert {name: each["code"] for name, each in reasons.items()} == {each.value: each.code for each in CloseReason}


def test_every_code_that_an_error_frame_can_carry_is_explained() -> None:
    planes = ("connection", "durability", "protocol")
    root = Path(errors.__file__).parent.parent
    raised = set()
    for plane in planes:
        for file in (root / plane).glob("*.py"):
            raised |= set(re.findall(r"\b([A-Z]\w+)\(", file.read_text(encoding="utf-8")))
    kinds = [getattr(errors, name, None) for name in sorted(raised)]
    codes = {kind.code for kind in kinds if isinstance(kind, type) and issubclass(kind, errors.SeriatimError)}
    assert codes <= set(ERROR_CODES)
    assert "NOT_A_MEMBER" in codes
