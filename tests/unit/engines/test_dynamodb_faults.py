"""DynamoDB that hangs, dies and comes back: no caller waits longer than asked, and what was answered is kept."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from seriatim.domain.errors import OutcomeUnknown
from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.engines.dynamodb.table_control import DynamoTableControl
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations.tables import create
from tests.contract.store_data import CHAT, CID, NOW_MS, T_S
from tests.support.real_dynamodb import PREFIX, CarefulClient
from tests.support.real_engines import real_engines
from tools.engines.dynamodb import DynamoDB

QUICK_S = 0.4


@pytest.fixture
def dynamodb(tmp_path: Path) -> Iterator[DynamoDB]:
    """One of its own, since it is going to be hurt; on the disk, since it is going to be killed."""
    with real_engines():
        DynamoDB(tmp_path).require()
    with DynamoDB.started(tmp_path / "dynamodb") as engine:
        yield engine


@pytest.fixture
async def client(dynamodb: DynamoDB) -> AsyncIterator[CarefulClient]:
    client = CarefulClient(dynamodb.url, patience_s=0)
    await create(DynamoTableControl(client.plain), SystemClock(), prefix=PREFIX)
    yield client
    await client.close()


async def test_a_store_that_stands_still_dies_and_comes_back(dynamodb: DynamoDB, client: CarefulClient) -> None:
    log = DynamoMessageLog(client.store())

    async def acknowledge(sequence: int, timeout_s: float = T_S) -> bool:
        return await log.acknowledge(CID, CHAT, sequence=sequence, now_ms=NOW_MS, timeout_s=timeout_s)

    assert await acknowledge(1)

    dynamodb.pause()
    with pytest.raises(OutcomeUnknown):
        await acknowledge(2, timeout_s=QUICK_S)  # it stands still until it is resumed, so the client's own time is up
    dynamodb.resume()
    assert await log.watermark(CID, CHAT, timeout_s=T_S) in (1, 2), "it was applied, was not, or still will be"
    assert await acknowledge(3)

    dynamodb.kill()
    for _ in range(3):
        with pytest.raises(OutcomeUnknown):
            await acknowledge(4, timeout_s=QUICK_S)

    await asyncio.to_thread(dynamodb.start)
    # DynamoDB Local answers a moment before it has committed, so a kill may undo what it answered for (decision 0064).
    assert await log.watermark(CID, CHAT, timeout_s=T_S) in (1, 2, 3)
    assert await acknowledge(5)
