"""A gateway that takes nobody: the front door asks one whether it is leaving, and not every process holds sockets.

It is never started, knows no engine but memory, and no client reaches it: its fronts are made without `sockets`.
"""

from collections.abc import Mapping, Sequence

from seriatim.connection.gateway import Gateway
from seriatim.connection.listener.admission import Admission
from seriatim.domain.errors import InternalError
from seriatim.domain.message import Draft
from seriatim.domain.tokens import Claims
from seriatim.engines.inprocess.directory import MemoryDirectory, MemoryRegistry
from seriatim.engines.inprocess.push import MemoryChannels, MemoryPush, MemoryPushSubscriber
from seriatim.engines.inprocess.wire import ShortWire
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Answer, Durability, PrefixPage
from seriatim.ports.tokens import Authenticator


def no_gateway(clock: Clock) -> Gateway:
    wire, channels = ShortWire(), MemoryChannels()
    return Gateway(
        "none", _NoPlane(), _directory(clock), MemoryPush(channels, wire), MemoryPushSubscriber(channels, wire), clock
    )


def no_admission(clock: Clock) -> Admission:
    return Admission(_NoAuthenticator(), _directory(clock), clock)


def _directory(clock: Clock) -> MemoryDirectory:
    return MemoryDirectory(MemoryRegistry(), ShortWire(), clock.now_ms)


class _NoPlane(Durability):
    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        raise _bug()

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        raise _bug()

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        raise _bug()

    async def heads(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, int]:
        raise _bug()

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        raise _bug()


class _NoAuthenticator(Authenticator):
    def verify(self, token: str, *, expired_too: bool = False) -> Claims:
        raise _bug()

    async def check_revoked(self, claims: Claims, *, timeout_s: float) -> None:
        raise _bug()


def _bug() -> InternalError:
    return InternalError("this process takes no clients")
