"""`ingest` and `rpc`: how a gateway and REST reach ingest processes by gRPC, and how an ingest process takes them."""

from collections.abc import Sequence
from pathlib import Path

from seriatim.engines.grpc.dial import GrpcDialer, MutualTls
from seriatim.engines.grpc.discovery import AddressSource, DnsAddresses, StaticAddresses
from seriatim.engines.grpc.durability import GrpcDurability
from seriatim.engines.grpc.server import DurabilityServer
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.runtime.config.settings import DNS, Settings, address
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.wiring.engine_set import DurabilityPlane


def remote_durability(settings: Settings, metrics: Metrics, clock: Clock) -> GrpcDurability:
    """The ingest processes that `ingest` names. Raises `OSError` if a TLS file cannot be read."""
    addresses, server_name = _address_source(settings.ingest)
    dialer = GrpcDialer(token=settings.rpc_token, tls=_tls(settings), server_name=server_name)
    metrics.grpc.dials = True
    return GrpcDurability(addresses, dialer, clock, observe=metrics.grpc)


def ingest_listener(
    settings: Settings, metrics: Metrics, clock: Clock, plane: DurabilityPlane, sessions: Sessions
) -> DurabilityServer:
    metrics.grpc.listens = True
    return DurabilityServer(plane, sessions, clock, token=settings.rpc_token, tls=_tls(settings), observe=metrics.grpc)


def _address_source(places: Sequence[str]) -> tuple[AddressSource, str]:
    """And by which name their certificates are checked, if not by their addresses."""
    if places[0].startswith(DNS):
        place = address(places[0].removeprefix(DNS))
        return DnsAddresses(place.host, place.port), place.host
    return StaticAddresses(places), ""


def _tls(settings: Settings) -> MutualTls | None:
    if not settings.rpc_tls_ca:
        return None
    ca, cert, key = (
        Path(path).read_bytes() for path in (settings.rpc_tls_ca, settings.rpc_tls_cert, settings.rpc_tls_key)
    )
    return MutualTls(ca=ca, cert=cert, key=key)
