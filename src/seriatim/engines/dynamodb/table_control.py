"""`TableControl` on DynamoDB. DynamoDB Local has no backups: what it does not know, it is not asked to do."""

from collections.abc import Mapping

import msgspec

from seriatim.domain.errors import InternalError
from seriatim.engines.dynamodb.transport.client import Client
from seriatim.engines.dynamodb.transport.errors import Refusal
from seriatim.ports.tables import Attribute, Index, Table, TableControl


class _KeyPart(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="AttributeName")
    kind: str = msgspec.field(name="KeyType")


class _Type(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="AttributeName")
    kind: str = msgspec.field(name="AttributeType")


class _Projection(msgspec.Struct, frozen=True):
    kind: str = msgspec.field(name="ProjectionType", default="")


class _Index(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="IndexName")
    keys: list[_KeyPart] = msgspec.field(name="KeySchema")
    projection: _Projection = msgspec.field(name="Projection", default=_Projection())
    status: str = msgspec.field(name="IndexStatus", default="")


class _Billing(msgspec.Struct, frozen=True):
    mode: str = msgspec.field(name="BillingMode", default="")


class _Table(msgspec.Struct, frozen=True):
    keys: list[_KeyPart] = msgspec.field(name="KeySchema")
    types: list[_Type] = msgspec.field(name="AttributeDefinitions")
    status: str = msgspec.field(name="TableStatus")
    indexes: list[_Index] = msgspec.field(name="GlobalSecondaryIndexes", default=[])
    billing: _Billing = msgspec.field(name="BillingModeSummary", default=_Billing())
    protected: bool = msgspec.field(name="DeletionProtectionEnabled", default=False)


class _Described(msgspec.Struct, frozen=True):
    table: _Table = msgspec.field(name="Table")


class _Expiry(msgspec.Struct, frozen=True):
    status: str = msgspec.field(name="TimeToLiveStatus", default="")
    attribute: str = msgspec.field(name="AttributeName", default="")


class _ExpiryDescribed(msgspec.Struct, frozen=True):
    expiry: _Expiry = msgspec.field(name="TimeToLiveDescription", default=_Expiry())


class _Recovery(msgspec.Struct, frozen=True):
    status: str = msgspec.field(name="PointInTimeRecoveryStatus", default="")


class _Backups(msgspec.Struct, frozen=True):
    recovery: _Recovery = msgspec.field(name="PointInTimeRecoveryDescription", default=_Recovery())


class _BackupsDescribed(msgspec.Struct, frozen=True):
    backups: _Backups = msgspec.field(name="ContinuousBackupsDescription", default=_Backups())


class DynamoTableControl(TableControl):
    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(self, name: str, *, timeout_s: float) -> Table | None:
        until = self._client.until(timeout_s)
        found = await self._describe(name, until)
        if found is None:
            return None
        expiry = await self._expiry(name, until)
        types = {each.name: each.kind for each in found.types}
        partition, sort = _keys(found.keys, types)
        return Table(
            name=name,
            partition=partition,
            sort=sort,
            indexes=tuple(_index(each, types) for each in found.indexes),
            expiry=expiry.attribute if expiry.status in ("ENABLED", "ENABLING") else None,
            on_demand=found.billing.mode == "PAY_PER_REQUEST",
            backups=await self._backups(name, until),
            protected=found.protected,
        )

    async def is_ready(self, name: str, *, timeout_s: float) -> bool:
        found = await self._describe(name, self._client.until(timeout_s))
        return found is not None and all(
            status == "ACTIVE" for status in (found.status, *(index.status for index in found.indexes))
        )

    async def create(self, table: Table, *, timeout_s: float) -> None:
        request: dict[str, object] = {
            "TableName": table.name,
            "AttributeDefinitions": _types(table),
            "KeySchema": _schema(table.partition, table.sort),
            "BillingMode": "PAY_PER_REQUEST",
            "DeletionProtectionEnabled": bool(table.protected),
        }
        if table.indexes:
            request["GlobalSecondaryIndexes"] = [
                {
                    "IndexName": index.name,
                    "KeySchema": _schema(index.partition, index.sort),
                    "Projection": {"ProjectionType": index.projection},
                }
                for index in table.indexes
            ]
        await self._unless("ResourceInUseException", "CreateTable", request, self._client.until(timeout_s))

    async def adjust(self, table: Table, *, timeout_s: float) -> bool:
        until = self._client.until(timeout_s)
        there = await self.describe(table.name, timeout_s=timeout_s)
        if there is None:
            raise InternalError(f"{table.name} is not there; create it first")
        if table.expiry is not None and there.expiry is None:
            expiry = {"AttributeName": table.expiry, "Enabled": True}
            await self._ask("UpdateTimeToLive", table.name, {"TimeToLiveSpecification": expiry}, until)
        if table.backups and there.backups is False:
            recovery = {"PointInTimeRecoveryEnabled": True}
            change = {"TableName": table.name, "PointInTimeRecoverySpecification": recovery}
            refused = "ContinuousBackupsUnavailableException"  # a table that is ready is not at once ready for this
            if await self._unless(refused, "UpdateContinuousBackups", change, until) is None:
                return False
        if table.protected and there.protected is False:
            protection = {"TableName": table.name, "DeletionProtectionEnabled": True}
            # In use: another change of the table is under way, perhaps this one, whose answer was lost.
            if await self._unless("ResourceInUseException", "UpdateTable", protection, until) is None:
                return False
        return True

    async def _describe(self, name: str, until: float) -> _Table | None:
        answer = await self._unless("ResourceNotFoundException", "DescribeTable", {"TableName": name}, until)
        return None if answer is None else msgspec.json.decode(answer, type=_Described).table

    async def _expiry(self, name: str, until: float) -> _Expiry:
        answer = await self._ask("DescribeTimeToLive", name, {}, until)
        return msgspec.json.decode(answer, type=_ExpiryDescribed).expiry

    async def _backups(self, name: str, until: float) -> bool | None:
        request = {"TableName": name}
        answer = await self._unless("UnknownOperationException", "DescribeContinuousBackups", request, until)
        if answer is None:
            return None
        described = msgspec.json.decode(answer, type=_BackupsDescribed)
        return described.backups.recovery.status == "ENABLED"

    async def _ask(self, operation: str, table: str, request: Mapping[str, object], until: float) -> bytes:
        return await self._client.call(operation, {"TableName": table, **request}, until=until)

    async def _unless(
        self, refused_as: str, operation: str, request: Mapping[str, object], until: float
    ) -> bytes | None:
        """The answer; None if it is this refusal."""
        try:
            return await self._client.call(operation, request, until=until)
        except InternalError as error:
            if isinstance(error.__cause__, Refusal) and error.__cause__.kind == refused_as:
                return None
            raise


def _keys(parts: list[_KeyPart], types: Mapping[str, str]) -> tuple[Attribute, Attribute | None]:
    by_kind = {part.kind: Attribute(part.name, types.get(part.name, "")) for part in parts}
    return by_kind["HASH"], by_kind.get("RANGE")


def _index(index: _Index, types: Mapping[str, str]) -> Index:
    partition, sort = _keys(index.keys, types)
    return Index(name=index.name, partition=partition, sort=sort, projection=index.projection.kind)


def _schema(partition: Attribute, sort: Attribute | None) -> list[dict[str, str]]:
    keys = [{"AttributeName": partition.name, "KeyType": "HASH"}]
    return keys if sort is None else [*keys, {"AttributeName": sort.name, "KeyType": "RANGE"}]


def _types(table: Table) -> list[dict[str, str]]:
    """Every attribute that is part of some key, once."""
    keys = [table.partition, table.sort, *(key for each in table.indexes for key in (each.partition, each.sort))]
    kinds = {key.name: key.kind for key in keys if key is not None}
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()]
