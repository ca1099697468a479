"""From text to typed values: what is refused, and how the refusal names the field."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from seriatim.api.core.parse import canonical_hash, headers_of, read_query, to_type
from seriatim.domain.errors import BadRequest, ValidationFailed


class Page(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: int | None = None
    all: bool = False
    direction: Literal["forward", "backward"] = "backward"
    cursor: str | None = None


class Inner(msgspec.Struct, frozen=True):
    size: int


class Body(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=3)]
    ids: Annotated[list[Annotated[str, Meta(pattern="^[a-z]$")]], Meta(min_length=1, max_length=2)] = []
    count: Annotated[int, Meta(ge=1, le=9)] = 1
    kind: Literal["direct", "group"] = "group"
    inner: Inner | None = None


def refusal(raw: bytes) -> tuple[str, str]:
    with pytest.raises(ValidationFailed) as caught:
        read_query(raw, Page)
    return _only(caught.value)


def _only(failure: ValidationFailed) -> tuple[str, str]:
    errors = failure.details["field_errors"]
    assert isinstance(errors, list)
    (only,) = errors
    return only["field"], only["code"]


def test_a_query_is_typed_and_says_what_was_sent() -> None:
    query, given = read_query(b"limit=5&all=true&after=0&unknown=1&unknown=2", Page)
    assert query == Page(limit=5, all=True, after=0)
    assert given == {"limit", "all", "after"}


def test_an_empty_query_is_all_defaults() -> None:
    assert read_query(b"", Page) == (Page(), frozenset())


@pytest.mark.parametrize("text", ["1.0", "%201", "1%20", "%2B1", "+1", "1_0", "", "0x1", "1e1", "01", "%D9%A1", "true"])
def test_a_number_has_one_way_to_be_written(text: str) -> None:
    assert refusal(f"limit={text}".encode()) == ("limit", "INVALID_FORMAT")


@pytest.mark.parametrize("text", ["0", "101", "-1", "9" * 30, "9" * 5000])
def test_a_number_out_of_range_is_refused_as_such(text: str) -> None:
    assert refusal(f"limit={text}".encode()) == ("limit", "OUT_OF_RANGE")


def test_a_number_without_a_limit_of_its_own_is_still_one_that_json_can_keep() -> None:
    assert read_query(b"after=9007199254740991", Page)[0].after == 2**53 - 1
    assert refusal(b"after=9007199254740992") == ("after", "OUT_OF_RANGE")


@pytest.mark.parametrize("text", ["True", "1", "yes", ""])
def test_a_truth_value_is_true_or_false(text: str) -> None:
    assert refusal(f"all={text}".encode()) == ("all", "INVALID_FORMAT")


def test_a_choice_must_be_one_of_the_choices() -> None:
    assert refusal(b"direction=up") == ("direction", "NOT_ALLOWED")


def test_a_parameter_is_given_once() -> None:
    assert refusal(b"limit=5&limit=5") == ("limit", "NOT_ALLOWED")


@pytest.mark.parametrize("raw", [b"cursor=%ff", b"cursor=%ed%a0%80", b"&".join([b"a=1"] * 51)])
def test_a_query_that_is_not_text_or_too_long_is_a_bad_request(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        read_query(raw, Page)


@pytest.mark.parametrize(
    ("value", "field", "code"),
    [
        ({}, "name", "REQUIRED"),
        ({"name": None}, "name", "INVALID_FORMAT"),
        ({"name": ""}, "name", "MIN_LENGTH"),
        ({"name": "long"}, "name", "TOO_LONG"),
        ({"name": "a", "ids": []}, "ids", "MIN_LENGTH"),
        ({"name": "a", "ids": ["a", "b", "c"]}, "ids", "TOO_LONG"),
        ({"name": "a", "ids": ["a", "A"]}, "ids[1]", "INVALID_FORMAT"),
        ({"name": "a", "count": 0}, "count", "OUT_OF_RANGE"),
        ({"name": "a", "count": 10}, "count", "OUT_OF_RANGE"),
        ({"name": "a", "count": True}, "count", "INVALID_FORMAT"),
        ({"name": "a", "count": 4.0}, "count", "INVALID_FORMAT"),
        ({"name": "a", "count": "4"}, "count", "INVALID_FORMAT"),
        ({"name": "a", "kind": "huge"}, "kind", "NOT_ALLOWED"),
        ({"name": "a", "kind": "x - at `$.name`"}, "kind", "NOT_ALLOWED"),
        ({"name": "a", "inner": {}}, "inner.size", "REQUIRED"),
        ({"name": "a", "inner": {"size": "big"}}, "inner.size", "INVALID_FORMAT"),
    ],
)
def test_a_refused_field_is_named_with_its_reason(value: object, field: str, code: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        to_type(value, Body)
    assert _only(caught.value) == (field, code)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"name": "long"}, "name: expected str of length <= 3"),
        ({"name": "a", "ids": ["a", "A"]}, "ids[1]: expected str matching regex '^[a-z]$'"),
        ({}, "name is required"),
        ({"name": "a", "inner": {}}, "inner.size is required"),
        ([], "the body: expected object, got array"),
    ],
)
def test_a_refusal_says_in_words_what_is_wrong_with_which_field(value: object, message: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        to_type(value, Body)
    assert caught.value.message == message


def test_a_refusal_does_not_repeat_a_whole_essay() -> None:
    with pytest.raises(ValidationFailed) as caught:
        to_type({"name": "a", "kind": "x" * 60_000}, Body)
    assert len(caught.value.message) < 300


def test_the_hash_of_a_body_tells_different_bodies_apart() -> None:
    assert canonical_hash({"a": 1, "b": {"d": 1, "c": 2}}) == canonical_hash({"b": {"c": 2, "d": 1}, "a": 1})
    assert canonical_hash({"a": 1}) != canonical_hash({"a": "1"})


def test_headers_are_found_by_lower_case_name() -> None:
    assert headers_of([(b"X-Thing", b"1"), (b"x-thing", b"2")]) == {"x-thing": "1, 2"}
