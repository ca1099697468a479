"""What an error of a port means to a client that wants to connect."""

import pytest

from seriatim.connection.listener.handshake import refusal_of
from seriatim.domain.errors import OutcomeUnknown, RateLimited, SeriatimError, ServiceUnavailable, Unauthorized


@pytest.mark.parametrize(
    ("error", "status", "code", "wait_s"),
    [
        (RateLimited("slow down"), 429, "rate_limited", 1),
        (RateLimited("slow down", retry_after_seconds=0.2), 429, "rate_limited", 1),
        (RateLimited("slow down", retry_after_seconds=2.4), 429, "rate_limited", 2),
        (ServiceUnavailable("away"), 503, "service_unavailable", 1),
        (OutcomeUnknown("lost", retry_after_seconds=3.0), 503, "service_unavailable", 3),
        (Unauthorized("ended", details={"reason": "token_revoked"}), 401, "token_revoked", None),
        (Unauthorized("old", details={"reason": "token_expired"}), 401, "invalid_token", None),
    ],
)
def test_a_refusal_says_what_is_wrong_and_how_long_to_wait(
    error: SeriatimError, status: int, code: str, wait_s: int | None
) -> None:
    refusal = refusal_of(error)
    assert (refusal.status, refusal.code, refusal.retry_after_s) == (status, code, wait_s)
    assert (refusal.message, refusal.details) == (error.message, error.details)
