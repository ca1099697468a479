"""An error says what to do next: rules that hold for all of them."""

from collections.abc import Iterator

import pytest

from seriatim.domain import errors
from seriatim.domain.errors import SeriatimError


def _kinds(root: type[SeriatimError]) -> Iterator[type[SeriatimError]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from _kinds(kind)


def _named(kind: type[SeriatimError]) -> str:
    return kind.__name__


@pytest.mark.parametrize("kind", list(_kinds(errors.Refused)), ids=_named)
def test_a_refusal_is_a_4xx_that_no_retry_mends_and_no_breaker_counts(kind: type[SeriatimError]) -> None:
    assert not kind.retryable
    assert 400 <= kind.http_status < 500
    assert not kind.trips_breaker


@pytest.mark.parametrize("kind", list(_kinds(errors.ServiceUnavailable)), ids=_named)
def test_every_infrastructure_failure_looks_alike_to_clients_and_is_worth_a_retry(kind: type[SeriatimError]) -> None:
    assert (kind.code, kind.http_status, kind.retryable) == ("SERVICE_UNAVAILABLE", 503, True)


def test_only_failures_of_the_infrastructure_trip_a_breaker() -> None:
    tripping = {kind.__name__ for kind in _kinds(SeriatimError) if kind.trips_breaker}
    assert tripping == {"ServiceUnavailable", "OutcomeUnknown"}, "a hot chat is not a broken store"


def test_only_a_bad_token_closes_the_connection_by_itself() -> None:
    closing = {kind.code for kind in _kinds(SeriatimError) if kind.close_code is not None}
    assert closing == {"UNAUTHORIZED", "INVALID_REFRESH_TOKEN", "INVALID_OTP", "DEVICE_MISMATCH"}


def test_a_chat_without_counter_halts_alone_and_names_itself() -> None:
    error = errors.CounterMissing("chat_1")
    assert error.chat_id == "chat_1"
    assert not error.trips_breaker
    assert (error.code, error.retryable, error.retry_after_seconds) == ("INTERNAL_ERROR", True, 60)


def test_details_are_copied_so_that_two_errors_never_share_them() -> None:
    given: dict[str, object] = {"reason": "token_expired"}
    error = errors.Unauthorized("no", details=given)
    given["reason"] = "changed"
    assert error.details == {"reason": "token_expired"}
    assert errors.Unauthorized("no").details == {}


def test_an_invalid_message_names_only_what_is_known() -> None:
    assert errors.InvalidMessage("bad").details == {}
    assert errors.InvalidMessage("bad", field="content").details == {"field": "content"}
    assert errors.InvalidMessage("bad", field="f", reason="r").details == {"field": "f", "reason": "r"}


def test_the_message_is_what_is_printed() -> None:
    assert str(errors.ServerBusy("queue full", retry_after_seconds=1)) == "queue full"
