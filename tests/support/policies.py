"""IAM as far as our policies use it: a client that may do only what a policy allows, and tells what it was asked to do.

The policies are the committed files of deploy/iam, so what is tested is what is deployed.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from seriatim.engines.dynamodb.transport.client import DynamoClient, Request

IAM = Path(__file__).parents[2] / "deploy" / "iam"
ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/"  # of the partition aws; there are others
_PARTS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}

Need = tuple[str, str]  # an action, and the table or index that it is done to


class Denied(Exception):
    """What a policy does not allow. Not a `SeriatimError`: nothing may catch it and go on."""


class PolicedClient(DynamoClient):
    """Another client's calls, if the policy of that name allows all that they need. `needs` collects it."""

    def __init__(
        self, client: DynamoClient, name: str, *, prefix: str = "", needs: dict[Need, None] | None = None
    ) -> None:
        self.needs = {} if needs is None else needs
        self._behind = client
        self._policy = policy(name)
        self._name = name
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        """All else that it is: its counts, for those who look at them."""
        return getattr(self._behind, name)

    def __setattr__(self, name: str, value: object) -> None:
        ours = name in ("needs", "_behind", "_policy", "_name", "_prefix")
        object.__setattr__(self if ours else self._behind, name, value)

    async def call(self, operation: str, request: Request, *, until: float) -> bytes:
        for need in needs(operation, request, self._prefix):
            self.needs[need] = None
            if not allows(self._policy, *need):
                raise Denied(f"{self._name} may not {need[0]} {need[1]}")
        return await self._behind.call(operation, request, until=until)


def policy(name: str) -> Mapping[str, Any]:
    found = msgspec.json.decode((IAM / f"{name}.json").read_bytes())
    assert isinstance(found, dict)
    return found


def allows(policy: Mapping[str, Any], action: str, resource: str, *, arn: str = ARN) -> bool:
    """What one statement denies, no other statement allows."""
    effects = [
        statement["Effect"]
        for statement in policy["Statement"]
        if _matches(statement["Action"], f"dynamodb:{action}") and _matches(statement["Resource"], arn + resource)
    ]
    return "Allow" in effects and "Deny" not in effects


def needs(operation: str, request: Request, prefix: str = "") -> Iterator[Need]:
    """One action for each table that a call touches; a transaction needs the actions of its parts."""
    match operation:
        case "BatchGetItem":
            tables = request["RequestItems"]
            assert isinstance(tables, Mapping)
            for table in tables:
                yield operation, str(table).removeprefix(prefix)
        case "TransactWriteItems":
            parts = request["TransactItems"]
            assert isinstance(parts, Sequence)
            for part in parts:
                [(kind, what)] = part.items()
                yield _PARTS[kind], str(what["TableName"]).removeprefix(prefix)
        case _:
            table = str(request["TableName"]).removeprefix(prefix)
            yield operation, f"{table}/index/{request['IndexName']}" if "IndexName" in request else table


def _matches(patterns: Sequence[str], text: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
