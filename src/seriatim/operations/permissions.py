"""What each role, and each tool of an operator, may do with the tables of a deployment; and the same as IAM policies.

A role may do what the handles that it is given can do, and nothing else. No role may delete a counter (ADR-004).
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from seriatim.operations.tables import TABLES

_GET, _GET_MANY, _QUERY, _SCAN = "GetItem", "BatchGetItem", "Query", "Scan"
_PUT, _UPDATE, _DELETE, _CHECK = "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"

READS = (_GET, _GET_MANY, _QUERY, _SCAN)


class TablePermission(msgspec.Struct, frozen=True):
    """`actions` on a table, or on one of its indexes. A transaction needs the actions of its parts, no other one."""

    table: str
    actions: tuple[str, ...]
    index: str | None = None


Resource = Callable[[TablePermission], str]  # how a grant's table or index is named where the policy is used

_MAKES_AND_COMPARES = (
    "CreateTable",
    "DescribeContinuousBackups",
    "DescribeTable",
    "DescribeTimeToLive",
    "UpdateContinuousBackups",
    "UpdateTable",
    "UpdateTimeToLive",
)

GRANTS: Mapping[str, tuple[TablePermission, ...]] = {
    "gateway": (),
    "ingest": (
        TablePermission("messages", (_PUT, _QUERY)),
        TablePermission("idempotency_keys", (_GET_MANY, _PUT)),
        TablePermission("chat_counters", (_GET_MANY, _UPDATE)),
        TablePermission("chat_counters", (_QUERY,), index="dirty-index"),
        TablePermission("chat_memberships", (_GET_MANY, _CHECK, _GET)),
        TablePermission("chat_memberships", (_QUERY,), index="user_chats-index"),
        TablePermission("delivery_state", (_GET_MANY, _GET, _UPDATE)),
        TablePermission("sessions", (_GET,)),
    ),
    "fanout": (
        TablePermission("chat_counters", (_GET,)),
        TablePermission("chat_memberships", (_QUERY,)),
    ),
    "api": (
        TablePermission("users", (_GET_MANY, _PUT, _UPDATE)),
        TablePermission("chats", (_GET_MANY, _GET, _PUT, _UPDATE)),
        TablePermission("chat_memberships", (_GET_MANY, _CHECK, _DELETE, _GET, _PUT, _QUERY, _UPDATE)),
        TablePermission("chat_memberships", (_QUERY,), index="user_chats-index"),
        TablePermission("messages", (_QUERY,)),
        TablePermission("chat_counters", (_GET, _PUT, _UPDATE)),
        TablePermission("delivery_state", (_GET_MANY,)),
        TablePermission("sessions", (_DELETE, _GET, _PUT, _UPDATE)),
        TablePermission("sessions", (_QUERY,), index="user_sessions-index"),
        TablePermission("otp_requests", (_GET, _PUT, _UPDATE)),
        TablePermission("direct_chat_index", (_PUT,)),
        TablePermission("api_idempotency", (_DELETE, _PUT, _UPDATE)),
    ),
    # `seriatim tables create` and `verify`: it sees no row.
    "tables": tuple(TablePermission(table.name, _MAKES_AND_COMPARES) for table in TABLES),
    # `seriatim check`: it sees the rows that invariants speak of, and changes none.
    "check": (
        *(
            TablePermission(table.name, (*READS, "DescribeTable"))
            for table in TABLES
            if table.name != "api_idempotency"
        ),
        TablePermission("chat_memberships", (_QUERY, _SCAN), index="user_chats-index"),
        TablePermission("sessions", (_QUERY, _SCAN), index="user_sessions-index"),
    ),
    # `seriatim counters repair`: it closes empty slots and makes a counter that is missing; it changes none that is.
    "counters": (
        TablePermission("messages", (_PUT, _QUERY)),
        TablePermission("chat_counters", (_GET_MANY, _GET, _PUT)),
        TablePermission("chat_memberships", (_QUERY,)),
        TablePermission("delivery_state", (_SCAN,)),
    ),
}


def policy(name: str, resource: Resource) -> dict[str, object]:
    """An IAM policy. A role without permissions gets an explicit Deny: a policy must not be empty."""
    return {"Version": "2012-10-17", "Statement": statements(GRANTS[name], resource)}


def statements(grants: Sequence[TablePermission], resource: Resource) -> list[dict[str, object]]:
    """Equal actions share a statement: a policy has a limit of some thousand characters."""
    together: dict[tuple[str, ...], list[TablePermission]] = {}
    for grant in grants:
        together.setdefault(tuple(sorted(grant.actions)), []).append(grant)
    if not together:
        return [{"Effect": "Deny", "Action": ["dynamodb:*"], "Resource": ["*"]}]
    return [
        {
            "Effect": "Allow",
            "Action": [f"dynamodb:{action}" for action in actions],
            "Resource": [resource(grant) for grant in alike],
        }
        for actions, alike in together.items()
    ]


def anywhere(grant: TablePermission) -> str:
    """In whichever partition (aws, aws-cn, aws-us-gov ...), region and account the policy is used, which are one each.

    The names are those of tables without a prefix.
    """
    table = f"arn:*:dynamodb:*:*:table/{grant.table}"
    return table if grant.index is None else f"{table}/index/{grant.index}"
