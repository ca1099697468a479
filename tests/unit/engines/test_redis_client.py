"""The connection to Redis that everybody shares: whose answer is whose, and what trouble costs."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable
from seriatim.engines.redis.client import RedisClient
from tests.support.real_redis import ask, client_of, until, until_it_answers
from tests.support.tcp_proxy import TcpProxy
from tools.engines.ports import spare_port
from tools.engines.redis import Redis

SOON_S = 5.0


async def test_answers_find_their_callers_however_many_share_the_connection(redis: Redis) -> None:
    async with proxy_and_client(redis) as (proxy, client):

        async def echo(number: int) -> None:
            texts = [f"{number}-{part}" for part in range(number % 7)]
            replies = await client.call([("ECHO", text) for text in texts], timeout_s=SOON_S)
            assert replies == [text.encode() for text in texts]

        await asyncio.gather(*(echo(number) for number in range(300)))
        assert proxy.attempts == 1


async def test_what_is_called_in_one_turn_leaves_in_one_write(redis: Redis) -> None:
    async with proxy_and_client(redis) as (proxy, client):
        await client.ping(timeout_s=SOON_S)
        before = proxy.chunks_sent
        await asyncio.gather(*(client.ping(timeout_s=SOON_S) for _ in range(100)))
        assert proxy.chunks_sent == before + 1


async def test_the_answer_to_a_caller_that_gave_up_reaches_no_other_caller(redis: Redis) -> None:
    async with proxy_and_client(redis) as (proxy, client):
        await client.ping(timeout_s=SOON_S)
        proxy.stall()
        impatient = asyncio.create_task(client.call([("ECHO", "mine")], timeout_s=0.05))
        cancelled = asyncio.create_task(client.call([("ECHO", "also mine"), ("PING",)], timeout_s=SOON_S))
        patient = asyncio.create_task(client.call([("ECHO", "yours")], timeout_s=SOON_S))
        with pytest.raises(OutcomeUnknown):
            await impatient
        cancelled.cancel()
        proxy.resume()
        assert await patient == [b"yours"]
        assert await client.call([("ECHO", "next")], timeout_s=SOON_S) == [b"next"]
        assert proxy.attempts == 1


async def test_a_refusal_is_for_the_one_who_asked_and_tells_nothing_of_what_was_sent(redis: Redis) -> None:
    async with client_of(redis.url) as client:
        good, bad = await asyncio.gather(
            client.call([("ECHO", "fine")], timeout_s=SOON_S),
            client.call([("ECHO", "a"), ("NOSUCH", "a secret"), ("ECHO", "b")], timeout_s=SOON_S),
            return_exceptions=True,
        )
        assert good == [b"fine"]
        assert isinstance(bad, ServiceUnavailable)
        assert "secret" not in f"{bad} {bad.__cause__}"
        assert await client.call([("ECHO", "next")], timeout_s=SOON_S) == [b"next"]


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
async def test_without_time_left_nothing_is_sent(redis: Redis, timeout_s: float) -> None:
    async with client_of(redis.url) as client:
        with pytest.raises(OutcomeUnknown):
            await client.call([("SET", "a", "1")], timeout_s=timeout_s)
        assert await ask(client, "EXISTS", "a") == 0


@pytest.mark.parametrize("connected_before", [True, False])
async def test_a_silent_redis_costs_the_time_given_and_no_more(redis: Redis, connected_before: bool) -> None:
    async with client_of(redis.url) as client:
        if connected_before:
            await client.ping(timeout_s=SOON_S)
        redis.pause()
        for timeout_s in (0.1, 0.3):
            began = time.monotonic()
            with pytest.raises(OutcomeUnknown):
                await client.ping(timeout_s=timeout_s)
            assert timeout_s * 0.9 <= time.monotonic() - began < timeout_s + 1
        redis.resume()
        await until_it_answers(client)


async def test_a_server_that_owes_an_answer_for_too_long_is_left_for_a_new_connection(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REDIS_SILENCE_S", 0.1)
    async with proxy_and_client(redis) as (proxy, client):
        await client.ping(timeout_s=SOON_S)
        proxy.stall()
        also_waiting = asyncio.create_task(client.call([("ECHO", "a")], timeout_s=60))
        with pytest.raises(OutcomeUnknown):
            await client.ping(timeout_s=0.2)
        with pytest.raises(OutcomeUnknown):
            await also_waiting
        proxy.resume()
        await client.ping(timeout_s=SOON_S)
        assert proxy.attempts == 2


async def test_a_slow_answer_to_one_is_no_reason_to_leave_a_server_that_answers_others(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REDIS_SILENCE_S", 0.5)
    async with proxy_and_client(redis) as (proxy, client):
        await client.ping(timeout_s=SOON_S)
        proxy.stall()
        with pytest.raises(OutcomeUnknown):
            await client.ping(timeout_s=0.05)
        proxy.resume()
        await client.ping(timeout_s=SOON_S)
        assert proxy.attempts == 1


async def test_a_killed_redis_fails_at_once_and_is_used_again_when_it_is_back(redis: Redis) -> None:
    async with client_of(redis.url) as client:
        await client.call([("SET", "a", "1")], timeout_s=SOON_S)
        waiting = asyncio.create_task(client.call([("BLPOP", "never", 0)], timeout_s=60))
        await asyncio.sleep(0)
        redis.kill()
        with pytest.raises(OutcomeUnknown):
            await waiting
        began = time.monotonic()
        for _ in range(10):
            with pytest.raises(ServiceUnavailable):
                await client.ping(timeout_s=60)
        assert time.monotonic() - began < 5
        redis.start()
        await until_it_answers(client)
        assert await ask(client, "EXISTS", "a") == 0


async def test_while_redis_is_away_not_every_call_dials(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REDIS_REDIAL_S", 60)
    async with proxy_and_client(redis) as (proxy, client):
        proxy.cut()
        for _ in range(20):
            with pytest.raises(ServiceUnavailable):
                await client.ping(timeout_s=SOON_S)
        assert proxy.attempts == 1


async def test_a_caller_that_does_not_wait_for_the_dial_leaves_it_to_the_others(redis: Redis) -> None:
    async with proxy_and_client(redis) as (proxy, client):
        proxy.stall()
        patient = asyncio.create_task(client.ping(timeout_s=SOON_S))
        cancelled = asyncio.create_task(client.ping(timeout_s=SOON_S))
        with pytest.raises(OutcomeUnknown):
            await client.ping(timeout_s=0.05)
        cancelled.cancel()
        proxy.resume()
        await patient
        assert proxy.attempts == 1


async def test_a_dial_that_takes_too_long_is_given_up(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REDIS_DIAL_S", 0.1)
    async with proxy_and_client(redis) as (proxy, client):
        proxy.stall()
        with pytest.raises(ServiceUnavailable):
            await client.ping(timeout_s=60)


async def test_what_finds_too_much_waiting_is_refused_and_never_sent(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REDIS_WAITING_COMMANDS_MAX", 10)
    async with proxy_and_client(redis) as (proxy, client):
        await client.ping(timeout_s=SOON_S)
        proxy.stall()
        waiting = asyncio.create_task(client.call([("SET", f"a{each}", "1") for each in range(9)], timeout_s=SOON_S))
        await asyncio.sleep(0)
        with pytest.raises(ServiceUnavailable) as refused:
            await client.call([("SET", "b1", "1"), ("SET", "b2", "1")], timeout_s=SOON_S)
        assert not isinstance(refused.value, OutcomeUnknown)
        proxy.resume()
        await waiting
        assert await ask(client, "DBSIZE") == 9


async def test_closing_ends_waiting_calls_and_refuses_later_ones(redis: Redis) -> None:
    async with client_of(redis.url) as client:
        await client.ping(timeout_s=SOON_S)
        waiting = asyncio.create_task(client.call([("BLPOP", "never", 0)], timeout_s=60))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(OutcomeUnknown):
            await waiting
        with pytest.raises(ServiceUnavailable):
            await client.ping(timeout_s=SOON_S)


async def test_closing_does_not_wait_for_a_dial(redis: Redis) -> None:
    async with proxy_and_client(redis) as (proxy, client):
        proxy.stall()
        waiting = asyncio.create_task(client.ping(timeout_s=60))
        await asyncio.sleep(0.01)
        await asyncio.wait_for(client.close(), 1)
        with pytest.raises(ServiceUnavailable):
            await waiting


async def test_it_signs_in_and_chooses_the_database_of_its_address(redis: Redis) -> None:
    async with client_of(redis.url) as admin:
        await ask(admin, "ACL", "SETUSER", "app", "on", ">pa:ss@word", "~*", "&*", "+@all")
        async with client_of(f"redis://app:pa%3Ass%40word@127.0.0.1:{redis.port}/3") as client:
            assert await ask(client, "ACL", "WHOAMI") == b"app"
            await ask(client, "SET", "a", "1")
        assert await ask(admin, "EXISTS", "a") == 0
        await ask(admin, "CONFIG", "SET", "requirepass", "other")
        async with client_of(f"redis://:other@127.0.0.1:{redis.port}/3") as client:
            assert await ask(client, "EXISTS", "a") == 1


async def test_a_wrong_password_is_not_repeated_in_the_complaint(redis: Redis) -> None:
    async with client_of(f"redis://app:hunter2@127.0.0.1:{redis.port}") as client:
        with pytest.raises(ServiceUnavailable) as raised:
            await client.ping(timeout_s=SOON_S)
        assert "WRONGPASS" in str(raised.value.__cause__)
        assert "hunter2" not in f"{raised.value} {raised.value.__cause__!r}"


async def test_a_server_that_became_a_replica_is_left_and_not_taken_again(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REDIS_REDIAL_S", 0)
    async with client_of(redis.url) as client:
        await ask(client, "REPLICAOF", "127.0.0.1", "1")
        for complaint in ("READONLY", "replica"):
            with pytest.raises(ServiceUnavailable) as raised:
                await client.call([("SET", "a", "1")], timeout_s=SOON_S)
            assert complaint in str(raised.value.__cause__)


async def test_tls_is_spoken_with_a_server_that_proves_its_name(redis: Redis, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    async with client_of(redis.url) as admin:
        port = spare_port()
        for name, value in (
            ("tls-cert-file", str(certificate)),
            ("tls-key-file", str(tmp_path / "key.pem")),
            ("tls-auth-clients", "no"),
            ("tls-port", port),
        ):
            await ask(admin, "CONFIG", "SET", name, value)
    async with client_of(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificate}") as client:
        await client.ping(timeout_s=SOON_S)
    async with client_of(f"rediss://127.0.0.1:{port}") as stranger:
        with pytest.raises(ServiceUnavailable) as raised:
            await stranger.ping(timeout_s=SOON_S)
        assert raised.value.__cause__ is not None
        assert isinstance(raised.value.__cause__.__cause__, ssl.SSLCertVerificationError)


def test_it_works_on_the_event_loop_that_servers_run_on(redis: Redis) -> None:
    async def converse() -> None:
        async with proxy_and_client(redis) as (proxy, client):
            replies = await asyncio.gather(*(ask(client, "ECHO", str(each)) for each in range(100)))
            assert replies == [str(each).encode() for each in range(100)]
            proxy.stall()
            with pytest.raises(OutcomeUnknown):
                await client.ping(timeout_s=0.05)
            proxy.resume()
            proxy.cut()
            await until(lambda: not client.is_connected)
            proxy.restore()
            await until_it_answers(client)

    uvloop.run(asyncio.wait_for(converse(), SOON_S))


def make_certificate(folder: Path) -> Path:
    """Signed by itself, for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "redis")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return folder / "certificate.pem"


@asynccontextmanager
async def proxy_and_client(redis: Redis) -> AsyncIterator[tuple[TcpProxy, RedisClient]]:
    async with TcpProxy(redis.port) as proxy, client_of(f"redis://127.0.0.1:{proxy.port}") as client:
        yield proxy, client
