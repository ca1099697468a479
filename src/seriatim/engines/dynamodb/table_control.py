"""`TableControl` on DynamoDB. DynamoDB Local has no backups: it is not asked for them."""

from collections.abc import Mapping

import msgspec

from seriatim.domain.errors import InternalError
from seriatim.engines.dynamodb.transport.client import DynamoClient
from seriatim.engines.dynamodb.transport.errors import DynamoError
from seriatim.ports.tables import Attribute, Index, Table, TableControl


class _KeySchemaElement(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="AttributeName")
    kind: str = msgspec.field(name="KeyType")


class _AttributeDefinition(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="AttributeName")
    kind: str = msgspec.field(name="AttributeType")


class _Projection(msgspec.Struct, frozen=True):
    kind: str = msgspec.field(name="ProjectionType", default="")


class _IndexDescription(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="IndexName")
    keys: list[_KeySchemaElement] = msgspec.field(name="KeySchema")
    projection: _Projection = msgspec.field(name="Projection", default=_Projection())
    status: str = msgspec.field(name="IndexStatus", default="")


class _BillingModeSummary(msgspec.Struct, frozen=True):
    mode: str = msgspec.field(name="BillingMode", default="")


class _TableDescription(msgspec.Struct, frozen=True):
    keys: list[_KeySchemaElement] = msgspec.field(name="KeySchema")
    types: list[_AttributeDefinition] = msgspec.field(name="AttributeDefinitions")
    status: str = msgspec.field(name="TableStatus")
    indexes: list[_IndexDescription] = msgspec.field(name="GlobalSecondaryIndexes", default=[])
    billing: _BillingModeSummary = msgspec.field(name="BillingModeSummary", default=_BillingModeSummary())
    protected: bool = msgspec.field(name="DeletionProtectionEnabled", default=False)


class _DescribeTableOutput(msgspec.Struct, frozen=True):
    table: _TableDescription = msgspec.field(name="Table")


class _TimeToLive(msgspec.Struct, frozen=True):
    status: str = msgspec.field(name="TimeToLiveStatus", default="")
    attribute: str = msgspec.field(name="AttributeName", default="")


class _DescribeTimeToLiveOutput(msgspec.Struct, frozen=True):
    expiry: _TimeToLive = msgspec.field(name="TimeToLiveDescription", default=_TimeToLive())


class _PointInTimeRecovery(msgspec.Struct, frozen=True):
    status: str = msgspec.field(name="PointInTimeRecoveryStatus", default="")


class _ContinuousBackups(msgspec.Struct, frozen=True):
    recovery: _PointInTimeRecovery = msgspec.field(
        name="PointInTimeRecoveryDescription", default=_PointInTimeRecovery()
    )


class _DescribeContinuousBackupsOutput(msgspec.Struct, frozen=True):
    backups: _ContinuousBackups = msgspec.field(name="ContinuousBackupsDescription", default=_ContinuousBackups())


class DynamoTableControl(TableControl):
    def __init__(self, client: DynamoClient) -> None:
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
        await self._call_unless_refused("ResourceInUseException", "CreateTable", request, self._client.until(timeout_s))

    async def adjust(self, table: Table, *, timeout_s: float) -> bool:
        until = self._client.until(timeout_s)
        there = await self.describe(table.name, timeout_s=timeout_s)
        if there is None:
            raise InternalError(f"{table.name} is not there; create it first")
        if table.expiry is not None and there.expiry is None:
            expiry = {"AttributeName": table.expiry, "Enabled": True}
            await self._call_table("UpdateTimeToLive", table.name, {"TimeToLiveSpecification": expiry}, until)
        if table.backups and there.backups is False:
            recovery = {"PointInTimeRecoveryEnabled": True}
            change = {"TableName": table.name, "PointInTimeRecoverySpecification": recovery}
            refused = "ContinuousBackupsUnavailableException"  # a new table can be ready and not yet accept this
            if await self._call_unless_refused(refused, "UpdateContinuousBackups", change, until) is None:
                return False
        if table.protected and there.protected is False:
            protection = {"TableName": table.name, "DeletionProtectionEnabled": True}
            # In use: another change of the table is under way, perhaps this one, whose answer was lost.
            if await self._call_unless_refused("ResourceInUseException", "UpdateTable", protection, until) is None:
                return False
        return True

    async def _describe(self, name: str, until: float) -> _TableDescription | None:
        answer = await self._call_unless_refused(
            "ResourceNotFoundException", "DescribeTable", {"TableName": name}, until
        )
        return None if answer is None else msgspec.json.decode(answer, type=_DescribeTableOutput).table

    async def _expiry(self, name: str, until: float) -> _TimeToLive:
        answer = await self._call_table("DescribeTimeToLive", name, {}, until)
        return msgspec.json.decode(answer, type=_DescribeTimeToLiveOutput).expiry

    async def _backups(self, name: str, until: float) -> bool | None:
        request = {"TableName": name}
        answer = await self._call_unless_refused(
            "UnknownOperationException", "DescribeContinuousBackups", request, until
        )
        if answer is None:
            return None
        described = msgspec.json.decode(answer, type=_DescribeContinuousBackupsOutput)
        return described.backups.recovery.status == "ENABLED"

    async def _call_table(self, operation: str, table: str, request: Mapping[str, object], until: float) -> bytes:
        return await self._client.call(operation, {"TableName": table, **request}, until=until)

    async def _call_unless_refused(
        self, code: str, operation: str, request: Mapping[str, object], until: float
    ) -> bytes | None:
        """The answer; None if it is this error."""
        try:
            return await self._client.call(operation, request, until=until)
        except InternalError as error:
            if isinstance(error.__cause__, DynamoError) and error.__cause__.code == code:
                return None
            raise


def _keys(parts: list[_KeySchemaElement], types: Mapping[str, str]) -> tuple[Attribute, Attribute | None]:
    by_kind = {part.kind: Attribute(part.name, types.get(part.name, "")) for part in parts}
    return by_kind["HASH"], by_kind.get("RANGE")


def _index(index: _IndexDescription, types: Mapping[str, str]) -> Index:
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
