"""Random requests made sensible: what the schema calls valid is filled with ids, codes and cursors that exist.

What was made invalid on purpose stays as it is.
"""

from random import Random
from typing import Any, TypeVar
from uuid import uuid4

from schemathesis import Case
from schemathesis.core.parameters import ParameterLocation

from tests.system.sample_data import MESSAGES, UNKNOWN_CHAT, UNKNOWN_MESSAGE, UNKNOWN_SESSION, UNKNOWN_USER, SampleData
from tests.system.users import User

AnyCase = Case[Any]
T = TypeVar("T")

_CHANGES_MEMBERS = ("/members", "/members/{user_id}", "/leave")
_ENDS_SESSIONS = ("/auth/logout", "/auth/refresh", "/sessions", "/sessions/{session_id}")
_KEYS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")
_OF_THE_CURSOR = ("before_sequence", "after_sequence", "direction", "for_sequence", "updated_since")


def fill_request(case: AnyCase, sample: SampleData) -> User:
    """Changes the case in place, and returns who is to send it."""
    choice = Choice(case)
    caller = _caller(case, sample, choice)
    if _is_valid(case, ParameterLocation.PATH):
        _fill_path(case, sample, caller, choice)
    if _is_valid(case, ParameterLocation.QUERY):
        _fill_query(case, sample, caller, choice)
    if _is_valid(case, ParameterLocation.HEADER):
        _fill_headers(case, caller, choice)
    if _is_valid(case, ParameterLocation.BODY) and isinstance(case.body, dict):
        _fill_body(case.body, case, sample, caller, choice)
    return caller


class Choice:
    """Every second request is one that should succeed; the others combine anything with anything.

    If something is invalid on purpose, it is the only thing that is wrong. The same request is always treated alike.
    """

    def __init__(self, case: AnyCase) -> None:
        body = case.body if isinstance(case.body, dict) else None
        self._random = Random(repr((case.path, case.path_parameters, case.query, dict(case.headers), body)))
        invalid = case.meta is not None and any(each.mode.is_negative for each in case.meta.components.values())
        self._ordinary = invalid or self._random.random() < 0.5

    def of(self, right: T, *others: T) -> T:
        return right if self._ordinary else self._random.choice([right, *others])


def _caller(case: AnyCase, sample: SampleData, choice: Choice) -> User:
    if case.method != "GET" and case.path.endswith(_ENDS_SESSIONS):
        return sample.newcomer()
    if case.path.endswith("/leave"):
        return choice.of(sample.bob, sample.alice, sample.carol)
    return choice.of(sample.alice, sample.bob, sample.carol)


def _is_valid(case: AnyCase, location: ParameterLocation) -> bool:
    return case.meta is None or not case.meta.is_negative_at(location)


def _fill_path(case: AnyCase, sample: SampleData, caller: User, choice: Choice) -> None:
    alice, bob, carol = sample.alice.user_id, sample.bob.user_id, sample.carol.user_id
    for name, given in case.path_parameters.items():
        match name:
            case "chat_id":
                changes = case.method != "GET" and case.path.endswith(_CHANGES_MEMBERS)
                mine = sample.new_group() if changes else sample.group
                chosen = choice.of(mine, sample.direct, sample.others, UNKNOWN_CHAT, given)
            case "user_id":
                chosen = choice.of(bob, alice, carol, UNKNOWN_USER, given)
            case "message_id":
                chosen = choice.of(sample.message_ids[2], sample.foreign_message, UNKNOWN_MESSAGE, "1", "99", given)
            case "sequence":
                chosen = choice.of("3", "1", str(MESSAGES), str(MESSAGES + 1), given)
            case "session_id":
                chosen = choice.of(sample.session_of(caller), sample.session_of(sample.dave), UNKNOWN_SESSION, given)
            case _:
                raise AssertionError(f"a new name in a path: {name}")
        case.path_parameters[name] = chosen


def _fill_query(case: AnyCase, sample: SampleData, caller: User, choice: Choice) -> None:
    query = case.query
    if "cursor" in query:  # a random one is refused; that has tests of its own
        del query["cursor"]
        cursor = sample.cursor(case.formatted_path) if caller is sample.alice else None
        if cursor is not None:
            for name in _OF_THE_CURSOR:
                query.pop(name, None)
            query["cursor"] = cursor
    if "chat_ids" in query:
        query["chat_ids"] = choice.of(f"{sample.group},{sample.others}", query["chat_ids"])


def _fill_headers(case: AnyCase, caller: User, choice: Choice) -> None:
    if "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = choice.of(str(uuid4()), *_KEYS)  # often the same: it was used before
    if case.path.endswith("/auth/refresh") and "X-Device-ID" in case.headers:
        case.headers["X-Device-ID"] = choice.of(caller.device_id, case.headers["X-Device-ID"])


def _fill_body(body: dict[str, Any], case: AnyCase, sample: SampleData, caller: User, choice: Choice) -> None:
    alice, bob, carol, dave = sample.alice.user_id, sample.bob.user_id, sample.carol.user_id, sample.dave.user_id
    others = choice.of([dave], [dave, UNKNOWN_USER] if body.get("type") == "group" else [UNKNOWN_USER])
    for name, value in body.items():
        # 47.0 is an integer to JSON Schema, and not to us.
        given: Any = int(value) if isinstance(value, float) and value.is_integer() else value
        body[name] = given
        match name:
            case "member_ids" | "members":
                body[name] = list(others)
            case "user_id":
                body[name] = choice.of(
                    bob if body.get("action") == "remove" else carol, alice, bob, UNKNOWN_USER, given
                )
            case "last_acked_sequence":
                body[name] = choice.of(MESSAGES, 1, MESSAGES + 1, given)
            case "refresh_token":
                body[name] = choice.of(caller.refresh_token, given)
            case "phone_numbers":
                body[name] = [sample.alice.phone_number, *given[:5]]
            case "display_name":
                body[name] = choice.of("Ada", "Ærøskøbing 🏝", "x" * 64)
            case "name":
                body[name] = choice.of("us", "  Ærøskøbing 🏝 ", "x" * 128, None)
            case "phone_number" if "otp" in body:
                body[name] = choice.of(sample.free_number(), sample.erin.phone_number)
                sample.request_code(body[name])
            case "otp":
                body[name] = choice.of("000000", given)
            case "device_id":
                case.headers["X-Device-ID"] = given
