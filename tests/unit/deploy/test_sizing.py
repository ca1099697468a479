"""The figures about sizing: what DynamoDB itself says of a send, what the records plan, and how they are rounded."""

from collections.abc import Iterator

import msgspec
import pytest

from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.engines.dynamodb.rows.messages import message_item
from seriatim.engines.dynamodb.transport.client import Request
from seriatim.ports.message_log import MessageLog
from tests.contract.store_data import BOB, CHAT, NOW_MS, T_S, allocate, entry, found_group, message, persist
from tests.contract.store_engines import DynamoEngine
from tests.support.real_dynamodb import CarefulClient
from tools.sizing import model, page
from tools.sizing.model import Cost, Load, Prices


class _Metered(CarefulClient):
    """Asks what each call consumed."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.units: dict[str, float] = {}

    async def call(self, operation: str, request: Request, *, until: float) -> bytes:
        answer = await super().call(operation, {**request, "ReturnConsumedCapacity": "INDEXES"}, until=until)
        consumed = msgspec.json.decode(answer)["ConsumedCapacity"]
        tables = consumed if isinstance(consumed, list) else [consumed]
        self.units[operation] = self.units.get(operation, 0) + sum(each["CapacityUnits"] for each in tables)
        return answer

    def taken(self) -> dict[str, float]:
        taken, self.units = self.units, {}
        return taken


async def test_a_message_alone_takes_the_units_that_dynamodb_itself_counts() -> None:
    store = DynamoEngine()
    await store.open()
    try:
        await found_group(store)
        meter = _Metered(store.client.url)
        log = DynamoMessageLog(meter.store())
        quiet = await _send(log, meter, 1)
        assert await log.flush(CHAT, published_through=1, published_message=1, timeout_s=T_S)
        flush = meter.taken()
        await _send(log, meter, 2, through=1)
        busy = await _send(log, meter, 3, through=2)
        store.client.requests += meter.requests  # so that their rows are removed
        await meter.close()
    finally:
        await store.close()
    # DynamoDB Local reads a key that is not there for nothing; Amazon does not.
    reads = quiet["BatchGetItem"] + 1
    writes = quiet["UpdateItem"] + quiet["TransactWriteItems"] + flush["UpdateItem"]
    assert Cost(calls=4, reads=reads, writes=writes) == model.seriatim(Load(quiet=True))
    writes = busy["UpdateItem"] + busy["TransactWriteItems"]
    assert Cost(calls=3, reads=reads, writes=writes) == model.seriatim(Load())


async def _send(log: MessageLog, meter: _Metered, sequence: int, *, through: int = 0) -> dict[str, float]:
    await log.lookup(CHAT, [f"key-{sequence}"], [BOB], timeout_s=T_S)
    await allocate(log, 1, through=through, last=through, now_ms=NOW_MS + sequence)
    assert await persist(log, entry(message(sequence))) is None
    units = meter.taken()
    assert list(units) == ["BatchGetItem", "UpdateItem", "TransactWriteItems"]
    return units


def test_the_model_of_the_record_is_that_of_its_appendix() -> None:
    assert model.adr_004(Load()) == Cost(calls=4, reads=1.5, writes=5)


def test_the_goals_for_calls_are_met_alone_and_with_24_writers() -> None:
    assert model.seriatim(Load()).calls <= 3
    assert model.seriatim(Load(batch=24, senders=24)).calls <= 0.5


def test_a_larger_batch_never_costs_more() -> None:
    for senders in ("one", "all"):
        costs = [model.seriatim(Load(batch=m, senders=1 if senders == "one" else m)) for m in page.BATCHES]
        dollars = [cost.dollars_per_million(Prices()) for cost in costs]
        assert dollars == sorted(dollars, reverse=True)


def _rows() -> Iterator[tuple[int, int]]:
    """Content at which a row just fits into a kilobyte, and one byte more."""
    empty = model.row_sizes(Load(content_bytes=0))["messages"]
    yield model.KB - empty, 1
    yield model.KB - empty + 1, 2


@pytest.mark.parametrize(("content_bytes", "units"), [*_rows()])
def test_a_row_is_rounded_up_to_a_kilobyte(content_bytes: int, units: int) -> None:
    assert model.writes_of(model.row_sizes(Load(content_bytes=content_bytes))["messages"]) == units


def test_names_texts_and_numbers_of_a_row_are_counted_as_dynamodb_counts_them() -> None:
    row = message_item(message(12_300, content="é", key="k", sender="u", chat_id="c"))
    texts = {
        "chat_id": 1,
        "kind": 7,
        "created_at": 24,
        "message_id": len("msg_c_12300_u"),
        "sender_id": 1,
        "client_message_id": 1,
        "content": 2,
        "content_type": 10,
    }
    assert model.row_bytes(row) == sum(len(name) + size for name, size in texts.items()) + len("sequence") + 3


def test_prices_are_inputs() -> None:
    cost = Cost(calls=1, reads=2, writes=3)
    assert cost.dollars_per_million(Prices(read_units_million=10, write_units_million=100)) == 320


def test_a_page_keeps_its_words_and_gets_its_figures() -> None:
    words = "# Words\n\n<!-- figures: prices -->\nold\n<!-- end -->\n\nmore words\n"
    found = page.with_figures(words)
    assert found == f"# Words\n\n<!-- figures: prices -->\n{page.prices_table()}\n<!-- end -->\n\nmore words\n"
    assert page.with_figures(found) == found
    with pytest.raises(KeyError):
        page.with_figures("<!-- figures: nothing -->\n<!-- end -->")
