"""How a process reaches another by gRPC and checks who calls it: channel options, mutual TLS and the shared token."""

import hmac
from collections.abc import Sequence

import grpc
import msgspec

from seriatim.domain import limits
from seriatim.engines.grpc.wire import TOKEN

ChannelOptions = Sequence[tuple[str, int | str]]

_COMMON: ChannelOptions = (
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
)
CLIENT_OPTIONS: ChannelOptions = (
    *_COMMON,
    ("grpc.enable_retries", 0),  # a hidden second attempt would arrive out of order
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a second dial opens a new connection
)
SERVER_OPTIONS: ChannelOptions = (
    *_COMMON,
    ("grpc.so_reuseport", 0),  # a port in use is an error; shared, it would get half of the gateways
    ("grpc.keepalive_time_ms", 30_000),  # a gateway whose machine fails closes nothing
    ("grpc.keepalive_timeout_ms", 10_000),
)


class MutualTls(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides show a certificate of the same authority. PEM, as read from their files."""

    ca: bytes
    cert: bytes
    key: bytes

    def __repr__(self) -> str:
        return "MutualTls(...)"

    def server_credentials(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials([(self.key, self.cert)], root_certificates=self.ca, require_client_auth=True)


class GrpcDialer:
    """Opens channels to ingest processes. `server_name`: what their certificates say, if it is not the address."""

    def __init__(self, *, token: str = "", tls: MutualTls | None = None, server_name: str = "") -> None:
        self._tls = tls
        self._options = [*CLIENT_OPTIONS]
        if server_name:
            self._options.append(("grpc.ssl_target_name_override", server_name))
        self.metadata: tuple[tuple[str, str], ...] = ((TOKEN, token),) if token else ()

    def channel(self, address: str) -> grpc.aio.Channel:
        if self._tls is None:
            return grpc.aio.insecure_channel(address, options=self._options)
        credentials = grpc.ssl_channel_credentials(self._tls.ca, self._tls.key, self._tls.cert)
        return grpc.aio.secure_channel(address, credentials, options=self._options)


def has_token(metadata: Sequence[tuple[str, str | bytes]], token: str) -> bool:
    """Takes the same time wherever the first difference is."""
    if not token:
        return True
    given = next((value for name, value in metadata if name == TOKEN), "")
    text = given if isinstance(given, bytes) else given.encode()
    return hmac.compare_digest(text, token.encode())
