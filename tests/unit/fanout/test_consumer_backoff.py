"""How long a consumer waits after a poll that failed, in virtual time."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.inprocess.wire import Wire
from seriatim.fanout.consumer import FanoutConsumer
from seriatim.ports.event_log import DEAD_LETTERS, MEMBERSHIPS, MESSAGES, Record
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import Process
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryDeadLetterWriter
from seriatim.simulation.stores.event_reader import MemoryEventReader
from tests.unit.fanout.fakes import FakeDirectory, FakePush, FakeRoster, FixedClock


class FailingReader(MemoryEventReader):
    """Its polls fail or return nothing, as the script says; after the last they fail. `times` is when it was polled."""

    def __init__(self, broker: MemoryBroker, loop: SimulatedLoop, script: Sequence[bool]) -> None:
        super().__init__(broker, Wire(), "fanout-workers", "f1")
        self.times: list[float] = []
        self._loop = loop
        self._script = list(script)

    async def poll(self, *, limit: int) -> Sequence[Record]:
        self.times.append(self._loop.time())
        if self._script and self._script.pop(0):
            return ()
        raise ServiceUnavailable("poll")


def test_pauses_after_failed_polls_double_and_begin_from_the_first_again_after_a_good_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "POLL_RETRY_S", 0.1)  # the other tests of this folder do not wait
    loop = SimulatedLoop(Random(1))
    try:
        process = Process(loop, "fanout", random=Random(1))
        broker = MemoryBroker({MESSAGES: 1, MEMBERSHIPS: 1, DEAD_LETTERS: 1})
        reader = FailingReader(broker, loop, [False, False, False, True])
        process.start(process.run(service, broker, reader).run())
        loop.run_until(3.0)
    finally:
        loop.close()
    pauses = [round(later - earlier, 6) for earlier, later in pairwise(reader.times)]
    # Three quarters of the full pause each: the clock of this test draws 0.5.
    assert pauses[:7] == [0.075, 0.15, 0.3, 0, 0.075, 0.15, 0.3]
    assert loop.failures == []


def service(broker: MemoryBroker, reader: MemoryEventReader) -> FanoutConsumer:
    return FanoutConsumer(
        reader,
        MemoryDeadLetterWriter(broker, Wire(), FixedClock().now_ms),
        FakeRoster(1, "ann"),
        FakeDirectory(),
        FakePush(),
        FixedClock(),
        consumer_id="f1",
    )
