"""What strangers can occupy: places, file descriptors, TLS handshakes, and time."""

import asyncio
import errno
import resource
import socket
from pathlib import Path

import pytest

from seriatim.connection.listener.state import Receive, Scope, Send
from seriatim.domain import limits
from seriatim.domain.addresses import parse_networks
from tests.unit.connection.listener_harness import ListenerHarness, Peer, hello, listener_harness, on_real_loops, until
from tests.unit.connection.test_listener_tls import contexts

GET = b"GET /hi HTTP/1.1\r\nHost: here\r\n\r\n"
POST = b"POST /hi HTTP/1.1\r\nHost: here\r\nContent-Length: 65536\r\n\r\n"
PATIENCE_S = 20.0  # far below the limits that are not shortened: an answer that comes later has another reason


# --- places ---- ------------------------------------------------------------------------------------------------------


@on_real_loops
async def test_security_h1_an_address_gets_no_more_than_its_share_and_others_are_served() -> None:
    async with listener_harness(connections_per_address_max=3) as harness:
        for _ in range(3):
            await harness.dial()
        await until(lambda: harness.listener._state.places.taken == 3)
        assert await status_of(await harness.dial()) == 503
        assert await status_of(await harness.dial(source="127.0.0.2")) == 200
        assert harness.seen.sockets_refused == ["address"]


@on_real_loops
async def test_security_h1_a_closed_connection_gives_its_place_back() -> None:
    async with listener_harness(connections_per_address_max=1) as harness:
        for _ in range(3):
            peer = await harness.dial()
            assert await status_of(peer) == 200
            await peer.close()
            await until(lambda: harness.listener._state.places.taken == 0)
        assert harness.seen.sockets_refused == []


@on_real_loops
async def test_security_h1_a_websocket_does_not_count_towards_the_share_of_its_address() -> None:
    async with listener_harness(connections_per_address_max=1) as harness, harness.client():
        assert await status_of(await harness.dial()) == 200


@on_real_loops
async def test_security_h1_a_trusted_proxy_has_no_share() -> None:
    proxies = parse_networks(["127.0.0.0/8"])
    async with listener_harness(connections_per_address_max=1, trusted_proxies=proxies) as harness:
        assert [await status_of(await harness.dial()) for _ in range(3)] == [200, 200, 200]


@on_real_loops
async def test_security_h1_above_80_percent_the_longest_idle_connection_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 5)
    async with listener_harness() as harness:
        peers = [await harness.dial() for _ in range(4)]
        for peer in peers:
            assert await status_of(peer) == 200
        assert await status_of(peers[0]) == 200  # the second one is the longest idle now
        assert await status_of(await harness.dial()) == 200
        async with asyncio.timeout(PATIENCE_S):
            assert await peers[1].rest() == b""
        assert [await status_of(peer) for peer in (peers[0], *peers[2:])] == [200, 200, 200]
        assert harness.seen.evictions == 1


@on_real_loops
async def test_security_h1_a_connection_with_a_request_in_progress_is_never_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 2)
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await go.wait()
        await hello(scope, receive, send)

    async with listener_harness(app) as harness:
        slow = await harness.dial()
        assert await status_of(slow) == 200
        slow.send(b"GET /slow HTTP/1.1\r\nHost: here\r\n\r\n")
        await until(lambda: bool(harness.listener._state.tasks._tasks))
        assert await status_of(await harness.dial()) == 200
        go.set()
        assert (await slow.answer()).status == 200


@on_real_loops
async def test_security_h1_sockets_that_are_being_refused_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 1)
    monkeypatch.setattr(limits, "REFUSED_CONNECTIONS_MAX", 1, raising=False)
    async with listener_harness() as harness:
        await harness.dial()
        await until(lambda: harness.listener._state.places.taken == 1)
        refused = await harness.dial()
        assert (await refused.answer()).status == 503  # and it keeps its socket open
        async with asyncio.timeout(PATIENCE_S):
            assert await (await harness.dial()).rest() == b""


@on_real_loops
async def test_security_h1_a_body_that_dribbles_has_a_deadline_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_S", 0.1, raising=False)
    monkeypatch.setattr(limits, "BODY_BYTES_PER_S", 1_000_000, raising=False)
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(POST)
        for _ in range(200):
            peer.send(b"x")
            await asyncio.sleep(0.01)
            if harness.seen.timeouts:
                break
        assert harness.seen.timeouts == ["body"]
        assert (await peer.answer()).status == 408


@on_real_loops
async def test_security_h1_a_large_body_has_a_second_more_for_each_kibibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_S", 0.0, raising=False)
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(POST)
        for _ in range(16):  # a little at a time: each piece finds the application waiting
            peer.send(b"x" * 4096)
            await asyncio.sleep(0.002)
        assert (await peer.answer()).status == 200


@on_real_loops
async def test_security_h1_empty_lines_do_not_keep_an_idle_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEEP_ALIVE_S", 0.1)
    async with listener_harness() as harness:
        peer = await harness.dial()
        assert await status_of(peer) == 200
        for _ in range(200):
            peer.send(b"\r\n")
            await asyncio.sleep(0.01)
            if peer.reader.at_eof():
                break
        assert peer.reader.at_eof()


# --- file descriptors --------------------------------------------------------------------------------------------


@on_real_loops
async def test_security_h1_without_file_descriptors_the_listener_reports_it_and_goes_on_when_there_are_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "ACCEPT_RETRY_S", 0.01, raising=False)
    async with listener_harness() as harness:
        with socket.socket() as client:
            await connect_without_descriptors(harness, client)
            await asyncio.get_running_loop().sock_sendall(client, GET)
            assert (await asyncio.get_running_loop().sock_recv(client, 12)).endswith(b"200")


@on_real_loops
async def test_security_h1_without_file_descriptors_the_listener_pauses_instead_of_spinning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "ACCEPT_RETRY_S", 3600.0, raising=False)
    async with listener_harness() as harness:
        with socket.socket() as client:
            await connect_without_descriptors(harness, client)
            assert harness.seen.accept_failures == [errno.EMFILE]


async def connect_without_descriptors(harness: ListenerHarness, client: socket.socket) -> None:
    """Connects while no file descriptor is free, for some turns of the loop after the first failure."""
    client.setblocking(False)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as lowest_free:
        free = lowest_free.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        client.connect_ex(("127.0.0.1", harness.port))  # the loops' own calls may import a module: a file
        await until(lambda: bool(harness.seen.accept_failures))
        for _ in range(100):
            await asyncio.sleep(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- TLS ---------------------------------------------------------------------------------------------------------


@on_real_loops
async def test_security_m5_a_tls_handshake_that_does_not_come_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(limits, "HANDSHAKE_S", 0.05)
    server, _ = contexts(tmp_path)
    async with listener_harness(tls=server) as harness:
        silent = await harness.dial()
        async with asyncio.timeout(PATIENCE_S):
            assert await silent.rest() == b""
        await until(lambda: harness.seen.timeouts == ["tls"])
        assert harness.listener._state.places.taken == 0


@on_real_loops
async def test_security_m5_a_tls_handshake_under_way_has_a_place_of_its_address(tmp_path: Path) -> None:
    server, _ = contexts(tmp_path)
    async with listener_harness(tls=server, connections_per_address_max=2) as harness:
        for _ in range(2):
            await harness.dial()
        await until(lambda: harness.seen.handshakes == [1, 2])
        async with asyncio.timeout(PATIENCE_S):
            assert await (await harness.dial()).rest() == b""
        assert harness.seen.sockets_refused == ["address"]


@on_real_loops
async def test_security_m5_above_the_bound_of_tls_handshakes_a_client_waits_and_is_served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(limits, "TLS_HANDSHAKES_MAX", 1, raising=False)
    server, client = contexts(tmp_path)
    async with listener_harness(tls=server) as harness:
        silent = await harness.dial()
        await until(lambda: harness.seen.handshakes == [1])
        dialing = asyncio.create_task(harness.dial(tls=client))
        for _ in range(100):
            await asyncio.sleep(0)
        assert harness.seen.handshakes == [1]
        await silent.close()
        assert await status_of(await dialing) == 200
        assert max(harness.seen.handshakes) == 1


async def status_of(peer: Peer) -> int:
    async with asyncio.timeout(PATIENCE_S):
        peer.send(GET)
        return (await peer.answer()).status
