"""Kafka with topics of a test's own. At its end no thread of a consumer or producer is left."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.contract.event_engines import PARTITIONS
from tests.contract.kafka_engines import KafkaEventLogEngine
from tests.support.real_kafka import real_kafka


@asynccontextmanager
async def kafka_engine() -> AsyncIterator[KafkaEventLogEngine]:
    engine = KafkaEventLogEngine(PARTITIONS)
    await engine.open()
    try:
        yield engine
    finally:
        await asyncio.to_thread(real_kafka)  # running again, whatever the test did
        await engine.close()
        assert [each.name for each in threading.enumerate() if each.name.startswith("kafka-")] == []
