"""A sweep passes by every partition of every topic."""

from seriatim.domain import limits
from seriatim.domain.sharding import partition as partition_of
from seriatim.engines.embedded.event_log import EmbeddedEventLog, EmbeddedEventWriter
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.sweep import Sweeper, Swept
from seriatim.ports.event_log import CHATS, MESSAGES, Event
from tests.support.manual_clock import NOON_MS, ManualClock

SIZES = {MESSAGES: 4, CHATS: 2}


async def test_one_sweep_removes_what_is_old_in_each_partition(folder: Folder) -> None:
    log = await EmbeddedEventLog.open(folder, SIZES)
    writer = EmbeddedEventWriter(log, ManualClock())
    for topic, count in SIZES.items():
        for number in range(count):
            key = next(name for name in map(str, range(100)) if partition_of(name, count) == number)
            await writer.append(topic, [Event(key=key, value=b"old")], timeout_s=5)
    assert await Sweeper(folder, log).sweep(NOON_MS + limits.EVENT_RETENTION_S * 1000) == Swept(0, sum(SIZES.values()))
    assert [list(log.records(topic)) for topic in SIZES] == [[], []]
