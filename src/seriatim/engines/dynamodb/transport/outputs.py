"""The parts of DynamoDB's answers that the engine reads, under the names that its API reference has for them."""

import msgspec

from seriatim.engines.dynamodb.rows.attributes import NOTHING


class GetItemOutput(msgspec.Struct, frozen=True):
    item: msgspec.Raw = msgspec.field(name="Item", default=NOTHING)


class UpdateItemOutput(msgspec.Struct, frozen=True):
    attributes: msgspec.Raw = msgspec.field(name="Attributes", default=NOTHING)


class BatchGetItemOutput(msgspec.Struct, frozen=True):
    responses: dict[str, list[msgspec.Raw]] = msgspec.field(name="Responses", default_factory=dict)
    unprocessed: dict[str, msgspec.Raw] = msgspec.field(name="UnprocessedKeys", default_factory=dict)


class QueryOutput(msgspec.Struct, frozen=True):
    """One page of a Query or a Scan. `next_key` is where the next page begins, `NOTHING` at the end."""

    items: list[msgspec.Raw] = msgspec.field(name="Items", default_factory=list)
    next_key: msgspec.Raw = msgspec.field(name="LastEvaluatedKey", default=NOTHING)

    @property
    def more(self) -> bool:
        return bool(self.next_key)


GET_ITEM = msgspec.json.Decoder(GetItemOutput)
UPDATE_ITEM = msgspec.json.Decoder(UpdateItemOutput)
BATCH_GET_ITEM = msgspec.json.Decoder(BatchGetItemOutput)
QUERY = msgspec.json.Decoder(QueryOutput)
