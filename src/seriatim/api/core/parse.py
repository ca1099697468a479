"""From the bytes of a request to typed values. Strict about what is known, silent about what is not.

Reading the body awaits; everything else here is a function from text to a value, or to what is wrong with it.
"""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import (
    BadRequest,
    NotFound,
    PayloadTooLarge,
    SeriatimError,
    UnsupportedMediaType,
    ValidationFailed,
)
from seriatim.domain.ids import is_id, is_uuid4

T = TypeVar("T")

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Disconnected(Exception):
    """The client closed the connection before its request was complete."""


# --- headers, path, query --------------------------------------------------------------------------------------------


def headers_of(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """By lower-case name; a header that was sent twice is joined, so that two tokens are none."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def uuid_header(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    return value.lower() if value is not None and is_uuid4(value) else None


def check_path(path: Mapping[str, str]) -> None:
    """What cannot be an id names nothing, and no store is asked about it."""
    if not all(is_id(value) for value in path.values()):
        raise NotFound("there is nothing here")


def read_query(raw: bytes, kind: type[T]) -> tuple[T, frozenset[str]]:
    """The typed parameters, and the names of those that were sent. Unknown ones are ignored."""
    fields_of: Callable[[type], dict[str, msgspec.inspect.Type]] = _fields_of
    known = fields_of(kind)
    given: dict[str, object] = {}
    for name, text in _pairs(raw):
        if name not in known:
            continue
        if name in given:
            raise ValidationFailed(f"{name} may be given once", field=name, field_code="NOT_ALLOWED")
        given[name] = _query_value(name, text, known[name])
    return to_type(given, kind), frozenset(given)


@lru_cache(maxsize=256)  # one entry per type of query in the table of routes
def _fields_of(kind: type) -> dict[str, msgspec.inspect.Type]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType), "queries are structs"
    return {field.encode_name: field.type for field in info.fields}


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            raw.decode("latin-1"), keep_blank_values=True, errors="strict", max_num_fields=limits.QUERY_FIELDS_MAX
        )
    except ValueError:
        raise BadRequest("the query is not readable, or has too many parameters") from None


def _query_value(name: str, text: str, kind: msgspec.inspect.Type) -> object:
    """Text, unless the parameter is a number or a truth value; those have exactly one way to be written."""
    alternatives = _alternatives(kind)
    if any(isinstance(each, msgspec.inspect.IntType) for each in alternatives):
        if _INTEGER.fullmatch(text) is None:
            raise ValidationFailed(f"{name} must be a whole number", field=name, field_code="INVALID_FORMAT")
        if len(text) > _INTEGER_CHARS_MAX or abs(int(text)) > limits.SEQUENCE_MAX:
            raise ValidationFailed(f"{name} is out of range", field=name, field_code="OUT_OF_RANGE")
        return int(text)
    if any(isinstance(each, msgspec.inspect.BoolType) for each in alternatives):
        if text not in ("true", "false"):
            raise ValidationFailed(f"{name} must be true or false", field=name, field_code="INVALID_FORMAT")
        return text == "true"
    return text


def _alternatives(kind: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    """What a field may hold, without what is only said about it."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return [plain for each in kind.types for plain in _alternatives(each)]
    return [kind]


_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_INTEGER_CHARS_MAX = len(str(limits.SEQUENCE_MAX)) + 1


# --- the body --------------------------------------------------------------------------------------------------------


async def read_body(receive: Receive, headers: Mapping[str, str]) -> bytes:
    """The declared size decides before anything is read; then what really arrives is counted."""
    declared = headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and len(declared) < 20:
        _check_size(int(declared))
    chunks: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Disconnected
        chunk: bytes = event.get("body", b"")
        size += len(chunk)
        _check_size(size)
        chunks.append(chunk)
        if not event.get("more_body", False):
            return b"".join(chunks)


def read_object(body: bytes, headers: Mapping[str, str], *, optional: bool) -> dict[str, object]:
    """The body as a JSON object. An empty body is one without fields where a body is `optional`."""
    if not body and optional:
        return {}
    if body and not _is_json(headers.get("content-type", "")):
        raise UnsupportedMediaType("send JSON: Content-Type: application/json")
    try:
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        raise _unreadable(body) from None
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    return value


def canonical_hash(value: Mapping[str, object]) -> str:
    """The same for every spelling of the same JSON: sorted keys, no spaces."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def _check_size(size: int) -> None:
    if size > limits.BODY_BYTES_MAX:
        raise PayloadTooLarge(
            f"a body has at most {limits.BODY_BYTES_MAX} bytes",
            details={"max_bytes": limits.BODY_BYTES_MAX, "received_bytes": size},
        )


def _is_json(content_type: str) -> bool:
    media_type, _, parameters = content_type.partition(";")
    charset = parameters.strip().lower().replace('"', "")
    return media_type.strip().lower() == "application/json" and charset in ("", "charset=utf-8", "charset=utf8")


def _unreadable(body: bytes) -> SeriatimError:
    """Our parser refuses half a surrogate pair, which browsers do send: that is a wrong field, not wrong JSON."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return BadRequest("the body is not JSON")
    for name, value in fields.items() if isinstance(fields, dict) else ():
        if _LONE_SURROGATE.search(f"{name}{value}"):
            field = str(name).encode("ascii", "replace").decode()
            return ValidationFailed(f"{field} is not Unicode text", field=field, field_code="INVALID_FORMAT")
    return BadRequest("the body is not JSON that we can read")


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


# --- to types --------------------------------------------------------------------------------------------------------


def to_type(value: object, kind: type[T]) -> T:
    """Raises `ValidationFailed` that names the first field which breaks a rule."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _field_error(str(error)) from None


def _field_error(message: str) -> ValidationFailed:
    """msgspec says what is wrong in a sentence: ``Expected `str` of length >= 1 - at `$.name` ``."""
    match = _LOCATED.fullmatch(message)
    problem, field = (match[1], match[2]) if match else (message, "")
    if missing := _MISSING.match(problem):
        name = f"{field}.{missing[1]}" if field else missing[1]
        return ValidationFailed(f"{name} is required", field=name, field_code="REQUIRED")
    text = problem[:1].lower() + problem[1:_PROBLEM_CHARS_MAX].replace("`", "")  # it may quote what was sent
    return ValidationFailed(f"{field or 'the body'}: {text}", field=field, field_code=_field_code(problem))


def _field_code(problem: str) -> str:
    for pattern, code in _FIELD_CODES:
        if pattern.search(problem):
            return code
    return "INVALID_FORMAT"


_PROBLEM_CHARS_MAX = 200
_LOCATED = re.compile(r"(.*) - at `\$\.?([^`]*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_FIELD_CODES = (
    (re.compile(r"matching regex"), "INVALID_FORMAT"),
    (re.compile(r"of length >="), "MIN_LENGTH"),
    (re.compile(r"of length <="), "TOO_LONG"),
    (re.compile(r"Invalid enum value"), "NOT_ALLOWED"),
    (re.compile(r"^Expected `(int|float)` [<>]=? "), "OUT_OF_RANGE"),
    (re.compile(r"out of range"), "OUT_OF_RANGE"),
)
