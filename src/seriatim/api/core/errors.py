"""Errors on the wire: `{"error": {code, message, details?, request_id}}`, and the headers that go with a status.

Any other exception is a bug: the body says INTERNAL_ERROR and nothing about it.
"""

import math
from typing import Any

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import MethodNotAllowed, RateLimited, SeriatimError, Unauthorized


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`details` depends on the code; with VALIDATION_ERROR it holds `field_errors`."""

    code: str
    message: str
    request_id: str
    details: dict[str, Any] | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """What every failed request answers."""

    error: ErrorDetail


def error_body(failure: Exception, request_id: str) -> ErrorBody:
    if not isinstance(failure, SeriatimError):
        failure = SeriatimError("something went wrong on our side; try again, or report the request id")
    return ErrorBody(
        ErrorDetail(
            code=failure.code, message=failure.message, request_id=request_id, details=dict(failure.details) or None
        )
    )


def error_status(failure: Exception) -> int:
    return failure.http_status if isinstance(failure, SeriatimError) else SeriatimError.http_status


def error_headers(failure: Exception) -> dict[str, str]:
    """`Retry-After` whenever we know, and always where a retry is the thing to do; the scheme with every 401."""
    if not isinstance(failure, SeriatimError):
        return {}
    headers = {}
    if isinstance(failure, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    if isinstance(failure, MethodNotAllowed):
        headers["allow"] = str(failure.details.get("allowed", ""))
    if failure.retry_after_seconds is not None:
        headers["retry-after"] = str(max(1, math.ceil(failure.retry_after_seconds)))
    elif failure.http_status == 503 or isinstance(failure, RateLimited):
        headers["retry-after"] = str(limits.UNAVAILABLE_RETRY_S)
    return headers
