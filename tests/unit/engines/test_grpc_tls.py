"""Mutual TLS between processes: who shows no certificate of our authority does not even get to the token."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from seriatim.domain.errors import ServiceUnavailable
from seriatim.domain.message import Receipt
from seriatim.engines.grpc.dial import GrpcDialer, MutualTls
from tests.unit.engines.grpc_harness import SendRecorder, grpc_client, ingest_processes


class _Authority:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self.pem = self._certificate(self._name, self._key, is_authority=True)

    def tls(self) -> MutualTls:
        """For a process on this machine, which is called ingest."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert = self._certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ingest")]), key)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return MutualTls(ca=self.pem, cert=cert, key=private)

    def _certificate(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False) -> bytes:
        now = datetime.now(UTC)
        names = [x509.DNSName("ingest"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)


async def test_processes_of_one_authority_talk() -> None:
    authority = _Authority()
    async with ingest_processes(1, tls=authority.tls(), token="word") as [ingest]:
        for name in ("", "ingest"):
            dialer = GrpcDialer(token="word", tls=authority.tls(), server_name=name)
            async with grpc_client([ingest], dialer=dialer) as client:
                recorder = SendRecorder(client)
                recorder.send("one")
                await recorder.all(1)
                assert isinstance(recorder.of("one"), Receipt)


@pytest.mark.parametrize("stranger", ["plain", "other authority"])
async def test_strangers_are_refused(stranger: str) -> None:
    authority = _Authority()
    async with ingest_processes(1, tls=authority.tls()) as [ingest]:
        dialer = GrpcDialer() if stranger == "plain" else GrpcDialer(tls=_Authority().tls())
        async with grpc_client([ingest], dialer=dialer) as client:
            recorder = SendRecorder(client)
            recorder.send("one", within_s=0.5)
            await recorder.all(1)
            assert type(recorder.of("one")) is ServiceUnavailable
            assert ingest.plane.taken == []


async def test_a_server_of_another_authority_is_given_no_token() -> None:
    async with ingest_processes(1, tls=_Authority().tls()) as [ingest]:
        ours = _Authority().tls()
        async with grpc_client([ingest], dialer=GrpcDialer(token="word", tls=ours)) as client:
            recorder = SendRecorder(client)
            recorder.send("one", within_s=0.5)
            await recorder.all(1)
            assert type(recorder.of("one")) is ServiceUnavailable
