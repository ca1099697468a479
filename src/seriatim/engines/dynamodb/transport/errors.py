"""What DynamoDB says when it does not do what was asked, translated once: into our errors, or into two of its own.

`ConditionFailed` and `TransactionCancelled` never leave the engine: only the caller knows what its condition meant.
"""

from collections.abc import Sequence

import msgspec

from seriatim.domain.errors import Conflict, InternalError, OutcomeUnknown, ServiceUnavailable, Throttled
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


class Reason(msgspec.Struct, frozen=True):
    """Why one item of a transaction stood in its way, "None" if it did not. `item` is the row that was there."""

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

    def __init__(self, reasons: Sequence[Reason]) -> None:
        super().__init__("the conditions of a transaction failed")
        self.reasons = reasons


class Refusal(Exception):
    """What the store said, for our logs: the cause of the error that the caller sees."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Said(msgspec.Struct, frozen=True):
    kind: str = msgspec.field(name="__type", default="")
    message: str = ""
    also_message: str = msgspec.field(name="Message", default="")  # the store spells it either way
    reasons: list[Reason] = msgspec.field(name="CancellationReasons", default=[])
    item: msgspec.Raw = msgspec.field(name="Item", default=NOTHING)


_decoder = msgspec.json.Decoder(_Said)


def refusal(operation: str, status: int, body: bytes) -> Exception:
    """The exception for an answer that is not 200."""
    try:
        said = _decoder.decode(body)
    except msgspec.MsgspecError:
        said = _Said()
    kind = said.kind.rpartition("#")[2]
    if kind == "ConditionalCheckFailedException":
        return ConditionFailed(said.item)
    if kind == "TransactionCanceledException":
        return _cancelled(operation, said)
    error = _error(status, kind)
    error.__cause__ = Refusal(kind, f"{operation}: {status} {kind}: {said.message or said.also_message}")
    return error


def reason_of(error: Exception) -> str:
    """In one word, for metrics. `condition` is an answer like any other: only its caller knows what it means."""
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


def _error(status: int, kind: str) -> ServiceUnavailable | InternalError:
    if kind in _THROTTLING:
        return Throttled("the store has no capacity at this moment; retry after a pause")
    if kind == "TransactionConflictException":
        return Conflict("another transaction touches the same rows; retry after a pause")
    # `TransactionInProgressException` is about an earlier request with the same token, which may yet commit.
    if status >= 500 or kind == "TransactionInProgressException":
        return OutcomeUnknown("the store failed; look before you repeat")
    if kind in _CREDENTIALS:
        return ServiceUnavailable("the store refuses this server's credentials; an operator must mend them")
    if kind == "ResourceNotFoundException":
        return InternalError("a table is missing; an operator must create it: seriatim tables create")
    return InternalError("the store did not understand this server; the log says more")


def _cancelled(operation: str, said: _Said) -> Exception:
    """Failed conditions come first: they tell what to do next, while a conflict only says when."""
    codes = [reason.code for reason in said.reasons]
    if CONDITION_FAILED in codes:
        return TransactionCancelled(said.reasons)
    if "TransactionConflict" in codes:
        return Conflict("another transaction touches the same rows; retry after a pause")
    error = _error(400, next((code for code in codes if code in _THROTTLING), ""))
    error.__cause__ = Refusal(
        "cancelled", f"{operation}: cancelled: {', '.join(codes)}: {said.message or said.also_message}"
    )
    return error
