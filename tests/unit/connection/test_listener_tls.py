"""The same listener with TLS: nothing of it may depend on a plain transport."""

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.asyncio.client import connect

from tests.unit.connection.fakes import CHAT, UUID
from tests.unit.connection.listener_harness import DEVICE, ListenerHarness, listener_harness, on_real_loops, read


@on_real_loops
async def test_rest_and_websocket_work_over_tls_and_end_politely(tmp_path: Path) -> None:
    server, client = contexts(tmp_path)
    async with listener_harness(tls=server) as harness:
        await _talk_politely(harness, client)


async def _talk_politely(harness: ListenerHarness, client: ssl.SSLContext) -> None:
    peer = await harness.dial(tls=client)
    for _ in range(2):
        peer.send(b"POST /hi HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\nabc")
        assert (await peer.answer()).body == b"POST /hi abc"
    peer.send(b"GET /hi HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    assert (await peer.rest()).endswith(b"GET /hi ")
    await peer.close()
    headers = {"Authorization": "Bearer ann", "X-Device-ID": DEVICE}
    async with connect(f"wss://127.0.0.1:{harness.port}/v1/ws", ssl=client, additional_headers=headers) as socket:
        assert (await read(socket))["type"] == "connection_established"
        await socket.send(
            f'{{"type":"send_message","client_message_id":"{UUID}","chat_id":"{CHAT}","content":"{"x" * 4000}"}}'
        )
        assert (await read(socket))["type"] == "message_ack"
        await harness.listener.drain()
        assert (await read(socket))["reason"] == "server_shutdown"
        await socket.wait_closed()
        assert socket.close_code == 1001


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's, with a certificate made for the occasion."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = folder / "both.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    return server, client
