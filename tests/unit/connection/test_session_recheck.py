"""A session that is revoked while it is connected: found within a minute, in virtual time."""

import asyncio
from itertools import pairwise

import msgspec

from seriatim.connection.observer import ListenerObserver
from seriatim.connection.session.connection import Connection
from seriatim.connection.session_recheck import RevocationRecheck
from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError, ServiceUnavailable, Unauthorized
from seriatim.domain.tokens import Claims, new_claims
from tests.unit.connection.fakes import FakeSocket
from tests.unit.connection.gateway_harness import GatewayHarness, gateway_chance


class Registrar:
    """An `Authenticator` that answers as scripted and remembers which session was asked about when."""

    def __init__(self) -> None:
        self.revoked: list[str] = []
        self.away = False
        self.asked: list[tuple[float, str]] = []
        self.at_once = self.most_at_once = 0

    def verify(self, token: str, *, expired_too: bool = False) -> Claims:
        raise AssertionError("a recheck has no token")

    async def check_revoked(self, claims: Claims, *, timeout_s: float) -> None:
        self.asked.append((asyncio.get_running_loop().time(), claims.sid))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        if self.away:
            raise ServiceUnavailable("it is unknown")
        if claims.sid in self.revoked:
            raise Unauthorized("this session was ended", details={"reason": "token_revoked"})


class Counted(ListenerObserver):
    unknown = 0

    def revocation_unknown(self, error: SeriatimError) -> None:
        self.unknown += 1


class Watch:
    """A recheck that runs, and connections that are watched by it."""

    def __init__(self, harness: GatewayHarness) -> None:
        self.harness = harness
        self.registrar, self.counted = Registrar(), Counted()
        self.recheck = RevocationRecheck(harness.gateway.connections, self.registrar, harness.clock, self.counted)
        self.loop = asyncio.create_task(self.recheck.run())

    async def join(self, session_id: str) -> tuple[Connection, FakeSocket]:
        claims = new_claims(user_id="user_1", session_id=session_id, device_id="", token_id="jti_1", now_s=0)
        identity = msgspec.structs.replace(self.harness.identity(device_id=f"device_{session_id}"), claims=claims)
        socket = FakeSocket()
        connection = await self.harness.gateway.open(socket, identity)
        socket.pong_received = connection.pong_received
        self.recheck.watch(connection)
        return connection, socket

    async def end(self) -> None:
        self.loop.cancel()
        await asyncio.wait([self.loop])


async def test_a_revoked_session_is_closed_within_the_interval_and_the_others_stay(harness: GatewayHarness) -> None:
    watch = Watch(harness)
    bad, bad_socket = await watch.join("sess_bad")
    good, _ = await watch.join("sess_good")
    watch.registrar.revoked.append("sess_bad")
    await asyncio.sleep(limits.REVOCATION_RECHECK_S + 0.1)
    assert bad.closed
    assert bad_socket.closed == (1008, "session_revoked")
    assert bad_socket.closing is not None
    assert bad_socket.closing.reconnect_allowed is False
    assert not good.closed
    await watch.end()


@gateway_chance(0.9)
async def test_every_connection_is_asked_about_again_and_again_and_never_later_than_the_interval(
    harness: GatewayHarness,
) -> None:
    watch = Watch(harness)
    began = asyncio.get_running_loop().time()
    for number in range(5):
        await watch.join(f"sess_{number}")
        await asyncio.sleep(7)
    await asyncio.sleep(300)
    for number in range(5):
        times = [began + 7 * number] + [at for at, who in watch.registrar.asked if who == f"sess_{number}"]
        assert len(times) > 4
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert max(gaps) <= limits.REVOCATION_RECHECK_S + 0.1
        assert min(gaps) > limits.REVOCATION_RECHECK_S / 2
    await watch.end()


async def test_when_a_recheck_fails_the_connection_stays_and_is_rechecked_next_time(harness: GatewayHarness) -> None:
    watch = Watch(harness)
    _, socket = await watch.join("sess_1")
    watch.registrar.away = True
    await asyncio.sleep(limits.REVOCATION_RECHECK_S + 0.1)
    assert socket.is_open
    assert watch.counted.unknown == 1
    watch.registrar.away = False
    watch.registrar.revoked.append("sess_1")
    await asyncio.sleep(limits.REVOCATION_RECHECK_S + 0.1)
    assert socket.closed == (1008, "session_revoked")
    await watch.end()


async def test_a_crowd_is_asked_about_a_few_at_a_time(harness: GatewayHarness) -> None:
    watch = Watch(harness)
    for number in range(100):
        await watch.join(f"sess_{number}")
    await asyncio.sleep(limits.REVOCATION_RECHECK_S + 1)
    assert len(watch.registrar.asked) == 100
    assert watch.registrar.most_at_once == limits.REVOCATION_CHECKS_MAX
    await watch.end()


async def test_a_connection_that_ended_is_not_rechecked(harness: GatewayHarness) -> None:
    watch = Watch(harness)
    connection, _ = await watch.join("sess_1")
    connection.lost()
    await asyncio.sleep(3 * limits.REVOCATION_RECHECK_S)
    assert watch.registrar.asked == []
    await watch.end()
