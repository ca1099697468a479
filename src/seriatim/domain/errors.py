"""Every error says what to do next: its wire code, whether a retry helps, the HTTP status, the close code.

Planes raise these; engines translate foreign exceptions into the store errors at their edge, once.
"""

from collections.abc import Mapping
from typing import ClassVar

from seriatim.domain import limits

Details = Mapping[str, object]

# What clients are told in place of words that only operators should read.
INTERNAL = "something went wrong on our side; retry with the same id"
STORE_FAILING = "the store is failing; retry with the same id"
STORE_SLOW = "the store did not answer in time; retry with the same id"
UNREADABLE = "a part of this chat cannot be read at the moment; retry later"


class SeriatimError(Exception):
    """Root. `trips_breaker`: a call that ends so has failed; otherwise it was answered, though not as was hoped.

    `message` is sent to clients: what happened and what to do next, in constant words. `log_reason` is why it happened,
    with paths, addresses and the words of libraries: it is logged by this process and never leaves it.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500
    close_code: ClassVar[int | None] = None
    trips_breaker: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        log_reason: str = "",
        retry_after_seconds: float | None = None,
        details: Details | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.log_reason = log_reason or message
        self.retry_after_seconds = retry_after_seconds
        self.details: dict[str, object] = dict(details or {})


# --- the request is wrong: change it, do not repeat it -------------------------------------------------------------


class Refused(SeriatimError):
    """This attempt stored nothing, and the same attempt never will."""

    http_status = 400


class InvalidMessage(Refused):
    code = "INVALID_MESSAGE"

    def __init__(self, message: str, *, field: str | None = None, reason: str | None = None) -> None:
        given = {"field": field, "reason": reason}
        super().__init__(message, details={name: value for name, value in given.items() if value is not None})


class MessageTooLarge(Refused):
    code = "MESSAGE_TOO_LARGE"
    http_status = 413

    def __init__(self, message: str, *, max_bytes: int = limits.CONTENT_BYTES_MAX) -> None:
        super().__init__(message, details={"max_bytes": max_bytes})


class InvalidContentType(Refused):
    code = "INVALID_CONTENT_TYPE"


class NotAMember(Refused):
    """The sender or reader is not a current member, or there is no such chat: the error does not say which."""

    code = "NOT_A_MEMBER"
    http_status = 403


class Forbidden(Refused):
    code = "FORBIDDEN"
    http_status = 403


class NotFound(Refused):
    code = "NOT_FOUND"
    http_status = 404


class Unauthorized(Refused):
    code = "UNAUTHORIZED"
    http_status = 401
    close_code = 1008


class InvalidRefreshToken(Unauthorized):
    code = "INVALID_REFRESH_TOKEN"


class InvalidOtp(Unauthorized):
    """Wrong, expired, unknown or spent: the error does not say which."""

    code = "INVALID_OTP"


class DeviceMismatch(Unauthorized):
    code = "DEVICE_MISMATCH"


class UserNotFound(NotFound):
    code = "USER_NOT_FOUND"


# --- the HTTP request is wrong ---------------------------------------------------------------------------------------


class BadRequest(Refused):
    """Not JSON, not an object, or a page cursor that this server did not issue."""

    code = "BAD_REQUEST"


class ValidationFailed(Refused):
    """A field breaks a rule. `field_code`: REQUIRED, MIN_LENGTH, TOO_LONG, INVALID_FORMAT, OUT_OF_RANGE, ..."""

    code = "VALIDATION_ERROR"

    def __init__(self, message: str, *, field: str, field_code: str) -> None:
        super().__init__(message, details={"field_errors": [{"field": field, "code": field_code, "message": message}]})


class MethodNotAllowed(Refused):
    code = "METHOD_NOT_ALLOWED"
    http_status = 405


class PayloadTooLarge(Refused):
    code = "PAYLOAD_TOO_LARGE"
    http_status = 413


class UnsupportedMediaType(Refused):
    code = "UNSUPPORTED_MEDIA_TYPE"
    http_status = 415


class Unprocessable(Refused):
    """Well-formed but impossible, such as acknowledging a message that does not exist."""

    code = "UNPROCESSABLE_ENTITY"
    http_status = 422


class KeyReused(Refused):
    code = "IDEMPOTENCY_KEY_REUSED"
    http_status = 409


class StillInProgress(SeriatimError):
    """The same request is being served at this moment, or lost a race too often: retry soon."""

    code = "CONFLICT"
    retryable = True
    http_status = 409


# --- the catalog refuses a change -----------------------------------------------------------------------------------


class InvalidOperation(Refused):
    code = "INVALID_OPERATION"


class ChatFull(Refused):
    code = "CHAT_FULL"


class AlreadyAMember(Refused):
    code = "ALREADY_A_MEMBER"
    http_status = 409


class AlreadyExists(Refused):
    """A conditional create lost: the id is taken."""

    code = "CONFLICT"
    http_status = 409


# --- too much at once: wait, then repeat ----------------------------------------------------------------------------


class RateLimited(SeriatimError):
    code = "RATE_LIMITED"
    retryable = True
    http_status = 429


class ServerBusy(SeriatimError):
    code = "SERVER_BUSY"
    retryable = True
    http_status = 503


# --- something below failed: repeat with the same client_message_id -------------------------------------------------


class ServiceUnavailable(SeriatimError):
    """An answer of this kind does not prove that nothing was stored."""

    code = "SERVICE_UNAVAILABLE"
    retryable = True
    http_status = 503
    trips_breaker = True


class Throttled(ServiceUnavailable):
    """The store had no capacity, most likely for one busy chat. Nothing was applied; a retry after a pause is safe."""

    trips_breaker = False


class Conflict(ServiceUnavailable):
    """Another transaction touched the same rows. Nothing was applied; a retry after a pause is safe."""

    trips_breaker = False


class OutcomeUnknown(ServiceUnavailable):
    """The call failed or timed out: it was applied, was not, or still will be. Read before you repeat."""


class OutOfTime(ServiceUnavailable):
    """The deadline leaves no room for another attempt. What was done until then may have been applied."""

    trips_breaker = False


class BreakerOpen(ServiceUnavailable):
    """A dependency failed repeatedly; calls are refused until it had time to recover."""

    trips_breaker = False


class Draining(ServiceUnavailable):
    """This process is shutting down; another one answers."""

    trips_breaker = False


# --- an operator is needed -------------------------------------------------------------------------------------------


class RowUnreadable(ServiceUnavailable):
    """A stored row is damaged, or is not what this release writes. What needs this row fails until an operator
    repairs it; everything else goes on, so it does not count as a failure of the store.
    """

    trips_breaker = False


class InternalError(SeriatimError):
    """A bug in the server, or tables that it cannot use. What it is concerns the operators alone, not the client."""

    code = "INTERNAL_ERROR"
    retryable = True

    def __init__(self, log_reason: str, *, message: str = INTERNAL, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, log_reason=log_reason, retry_after_seconds=retry_after_seconds)

    def __str__(self) -> str:
        return self.log_reason


class CounterMissing(InternalError):
    """The chat's counter row is gone. This chat halts until it is repaired; others go on."""

    def __init__(self, chat_id: str) -> None:
        message = "this chat is halted for repair; retry in a minute with the same id"
        super().__init__(f"the counter row of {chat_id} is gone", message=message, retry_after_seconds=60)
        self.chat_id = chat_id
