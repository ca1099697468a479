"""Slow readers are warned, given their time, and not kept for ever; the watch says so when they are not."""

from collections.abc import Callable
from random import Random

from seriatim.domain import limits
from seriatim.simulation.checks.history import WorldHistory
from seriatim.simulation.checks.slow_consumers import SlowConsumerCheck
from seriatim.simulation.clients.socket import SimulatedSocket
from seriatim.simulation.faults.plan import Faults, profile_named
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import Process
from seriatim.simulation.trace import Trace

WARNING = b'{"type":"error","code":"SLOW_CONSUMER"}'


class Reader:
    def frame_arrived(self, socket: SimulatedSocket, frame: bytes) -> None:
        return

    def socket_closed(self, socket: SimulatedSocket) -> None:
        return


class World:
    """One socket that is warned at second 1."""

    def __init__(self, *, reading: bool) -> None:
        self.loop = SimulatedLoop(Random(1))
        self.history = WorldHistory(self.loop, Trace())
        self.gateway = Process(self.loop, "gateway", random=Random(1))
        device = Process(self.loop, "device", random=Random(1))
        faults = Faults(Random(1), profile_named("calm"), duration_s=20.0)
        self.socket = SimulatedSocket(self.gateway, device, Reader(), faults)
        self.socket.slow_consumer_check = SlowConsumerCheck(self.socket, self.gateway, "a1", self.history)
        self.socket.reading = reading
        self.at(1.0, lambda: self.socket.write([WARNING]))

    def at(self, when: float, act: Callable[[], None]) -> None:
        self.gateway.call_at(when, act)

    def broken(self) -> list[str]:
        self.loop.run_until(20.0)
        return [violation.invariant for violation in self.history.violations]


def test_a_close_before_the_end_of_the_grace_period_is_noticed() -> None:
    world = World(reading=False)
    world.at(1.0 + limits.SLOW_CONSUMER_GRACE_S - 0.1, lambda: world.socket.close(1008, "slow_consumer"))
    assert world.broken() == ["slow_consumer_grace"]


def test_a_close_at_the_end_of_the_grace_period_is_right() -> None:
    world = World(reading=False)
    world.at(1.0 + limits.SLOW_CONSUMER_GRACE_S, lambda: world.socket.close(1008, "slow_consumer"))
    assert world.broken() == []


def test_a_close_for_another_reason_needs_no_grace() -> None:
    world = World(reading=False)
    world.at(1.1, lambda: world.socket.close(1001, "server_shutdown"))
    assert world.broken() == []


def test_a_reader_who_never_reads_and_is_never_closed_is_noticed() -> None:
    assert World(reading=False).broken() == ["slow_consumer_closed"]


def test_a_reader_who_reads_on_may_stay() -> None:
    assert World(reading=True).broken() == []


def test_a_gateway_that_stood_still_may_be_late() -> None:
    world = World(reading=False)
    world.loop.call_at(3.0, world.gateway.pause, context=world.loop.world.context)
    world.loop.call_at(4.0, world.gateway.resume, context=world.loop.world.context)
    assert world.broken() == []
