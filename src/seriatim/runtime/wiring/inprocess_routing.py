"""`directory = embedded:`: connections, pushes, quotas and revocations in the memory of one process."""

from collections.abc import Mapping, Sequence

from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.engines.inprocess.push import InProcessChannels, InProcessPush, InProcessPushSubscriber
from seriatim.engines.inprocess.quotas import InProcessQuotas
from seriatim.engines.inprocess.revocations import InProcessRevocations
from seriatim.engines.inprocess.wire import DirectWire
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory
from seriatim.ports.push import Push, PushSubscriber
from seriatim.ports.quotas import Quotas
from seriatim.ports.revocations import Revocations
from seriatim.runtime.wiring.engine_set import BackgroundTask, RoutingEngine


class InprocessRouting(RoutingEngine):
    def __init__(self, clock: Clock) -> None:
        wire, channels = DirectWire(), InProcessChannels()
        self.tasks: Sequence[BackgroundTask] = ()
        self._directory = InProcessDirectory(InProcessRegistry(), wire, clock.now_ms)
        self._push = InProcessPush(channels, wire)
        self._subscriber = InProcessPushSubscriber(channels, wire)
        self._quotas = InProcessQuotas(clock)
        self._revocations = InProcessRevocations(clock)

    def directory(self) -> Directory:
        return self._directory

    def push(self) -> Push:
        return self._push

    def subscriber(self) -> PushSubscriber:
        return self._subscriber

    def quotas(self) -> Quotas:
        return self._quotas

    def revocations(self) -> Revocations:
        return self._revocations

    async def check_reachable(self) -> None:
        """It is in this process."""

    async def availability(self) -> Mapping[str, str | None]:
        return {}

    async def close(self) -> None:
        """It holds nothing open."""
