"""DynamoDB's error answers, translated once: into errors of the domain, or into two of the engine.

`ConditionFailed` and `TransactionCancelled` never leave the engine: only the caller knows what its condition meant.
"""

from collections.abc import Sequence

import msgspec

from seriatim.domain.errors import (
    STORE_FAILING,
    Conflict,
    InternalError,
    OutcomeUnknown,
    SeriatimError,
    ServiceUnavailable,
    Throttled,
)
from seriatim.engines.dynamodb.rows.attributes import NOTHING

CONDITION_FAILED = "ConditionalCheckFailed"

_THROTTLING = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "LimitExceededException",
        # as reasons of a cancelled transaction
        "ProvisionedThroughputExceeded",
        "ThrottlingError",
    }
)
_CREDENTIALS = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    }
)


class CancellationReason(msgspec.Struct, frozen=True):
    """Why one item cancelled a transaction, "None" if it did not. `item` is the row that was there."""

    code: str = msgspec.field(name="Code", default="None")
    item: msgspec.Raw = msgspec.field(name="Item", default=NOTHING)

    @property
    def failed(self) -> bool:
        return self.code == CONDITION_FAILED


class ConditionFailed(Exception):
    """The condition of a single write. `item` is the row as it is, `NOTHING` if there is none."""

    def __init__(self, item: msgspec.Raw) -> None:
        super().__init__("the condition of a write failed")
        self.item = item


class TransactionCancelled(Exception):
    """Nothing was written, since some conditions failed: a reason for each item, in their order."""

    def __init__(self, reasons: Sequence[CancellationReason]) -> None:
        super().__init__("the conditions of a transaction failed")
        self.reasons = reasons


class DynamoError(Exception):
    """DynamoDB's own error code and text, for the log: the cause of the error that the caller sees."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class _ErrorAnswer(msgspec.Struct, frozen=True):
    type: str = msgspec.field(name="__type", default="")
    message: str = ""
    capital_message: str = msgspec.field(name="Message", default="")  # DynamoDB spells it either way
    reasons: list[CancellationReason] = msgspec.field(name="CancellationReasons", default=[])
    item: msgspec.Raw = msgspec.field(name="Item", default=NOTHING)

    @property
    def text(self) -> str:
        return self.message or self.capital_message


_decoder = msgspec.json.Decoder(_ErrorAnswer)


def error_of_response(operation: str, status: int, body: bytes) -> Exception:
    """The exception for an answer that is not 200."""
    try:
        error_body = _decoder.decode(body)
    except msgspec.MsgspecError:
        error_body = _ErrorAnswer()
    code = error_body.type.rpartition("#")[2]
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(error_body.item)
    if code == "TransactionCanceledException":
        return _cancelled(operation, error_body)
    return _caused(_error(status, code), DynamoError(code, f"{operation}: {status} {code}: {error_body.text}"))


def reason_of(error: Exception) -> str:
    """One word for metrics. `condition` is no failure: only the caller knows what it means."""
    match error:
        case ConditionFailed() | TransactionCancelled():
            return "condition"
        case Throttled():
            return "throttled"
        case Conflict():
            return "conflict"
        case OutcomeUnknown():
            return "unanswered"
        case ServiceUnavailable():
            return "credentials"
    return "misunderstood"


def _error(status: int, code: str) -> ServiceUnavailable | InternalError:
    if code in _THROTTLING:
        return Throttled("the store has no capacity at this moment; retry after a pause")
    if code == "TransactionConflictException":
        return Conflict("another transaction touches the same rows; retry after a pause")
    # `TransactionInProgressException` is about an earlier request with the same token, which may yet commit.
    if status >= 500 or code == "TransactionInProgressException":
        return OutcomeUnknown("the store failed; retry with the same id")
    if code in _CREDENTIALS:
        return ServiceUnavailable(
            STORE_FAILING,
            log_reason="the store refuses this server's credentials; an operator must mend them",
        )
    if code == "ResourceNotFoundException":
        return InternalError("a table is missing; an operator must create it: seriatim tables create")
    return InternalError("the store did not understand this server")


def _cancelled(operation: str, body: _ErrorAnswer) -> Exception:
    """Failed conditions come first: the caller acts on them, while a conflict only calls for another attempt."""
    codes = [reason.code for reason in body.reasons]
    if CONDITION_FAILED in codes:
        return TransactionCancelled(body.reasons)
    if "TransactionConflict" in codes:
        return Conflict("another transaction touches the same rows; retry after a pause")
    error = _error(400, next((code for code in codes if code in _THROTTLING), ""))
    return _caused(error, DynamoError("cancelled", f"{operation}: cancelled: {', '.join(codes)}: {body.text}"))


def _caused(error: SeriatimError, cause: DynamoError) -> SeriatimError:
    """What DynamoDB said goes into the log, behind what it means."""
    error.log_reason = f"{error.log_reason} ({cause})"
    error.__cause__ = cause
    return error
