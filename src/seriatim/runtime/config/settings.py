"""Every setting of the server: its meaning, its default, its unit.

`sources` reads files and the environment; `validation` knows which settings may not go together. What must not be
configured is in `domain.limits`.
"""

import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from seriatim.domain import limits
from seriatim.runtime.config.roles import ALL_ROLES, ProcessRole

EMBEDDED = "embedded:"
OFF = "off"
DNS = "dns:"
ENGINE_USERS = {
    "store": (ProcessRole.INGEST, ProcessRole.FANOUT, ProcessRole.API),
    "events": (ProcessRole.INGEST, ProcessRole.FANOUT, ProcessRole.API),
    "directory": (ProcessRole.GATEWAY, ProcessRole.FANOUT, ProcessRole.API),
}


def _about(
    description: str, *, unit: str = "", ge: int | None = None, le: int | None = None, secret: bool = False
) -> Meta:
    return Meta(description=description, extra={"unit": unit, "secret": secret}, ge=ge, le=le)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The same name in a file (`port`), in the environment (`SERIATIM_PORT`) and as a flag (`--port`)."""

    env: Annotated[
        Literal["dev", "test", "prod"],
        _about(
            "What the server is for. `dev` prints one-time codes to the console; in `test` every code is 000000, and "
            "the limits on REST, codes and connections are off; `prod` wants a real sender of codes."
        ),
    ] = "dev"
    host: Annotated[
        str, _about("Address to listen on, for REST, /docs and WebSocket. `0.0.0.0` or `::` listens on all.")
    ] = "127.0.0.1"
    port: Annotated[int, _about("Port to listen on. 0 takes any that is free.", ge=0, le=65_535)] = 8080
    internal: Annotated[
        str,
        _about("`host:port` for /metrics and /health/ready, which are not for the public. `off`: no such listener."),
    ] = "127.0.0.1:8081"
    instance: Annotated[str, _about("Name of this server in logs and metrics. Empty: the name of the machine.")] = ""
    data: Annotated[str, _about("Folder for all that is stored. Made at the first start; one server at a time.")] = (
        "seriatim-data"
    )
    keys: Annotated[
        str, _about("Folder with the keys that sign tokens. Empty: `keys` in the data folder. Made at the first start.")
    ] = ""
    tls_cert: Annotated[str, _about("PEM file with the certificate chain. Empty: no TLS here.")] = ""
    tls_key: Annotated[str, _about("PEM file with the certificate's private key.")] = ""
    trusted_proxies: Annotated[
        tuple[str, ...],
        _about("Networks of proxies whose X-Forwarded-For is believed, such as `10.0.0.0/8`."),
    ] = ()
    connections_per_address_max: Annotated[
        int,
        _about(
            "Sockets that one client address (of IPv6: one /64) may have open at once; a WebSocket counts until its "
            "handshake is done. More get 503. Trusted proxies have no such limit, and `env` `test` has none.",
            ge=1,
            le=10_000,
        ),
    ] = limits.CONNECTIONS_PER_ADDRESS
    origins: Annotated[
        tuple[str, ...],
        _about("Web origins that may open a WebSocket, such as `https://chat.example`. Empty: all, for tokens decide."),
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        _about("Web origins whose pages may call REST, such as `https://chat.example`, or `*`. Empty: none."),
    ] = ()
    log_format: Annotated[
        Literal["auto", "pretty", "json"], _about("How log lines look. `auto`: pretty on a terminal, JSON elsewhere.")
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _about("The least important lines that are still logged.")
    ] = "info"
    roles: Annotated[
        tuple[ProcessRole, ...],
        _about(
            "What runs in this process: `gateway`, `ingest`, `fanout`, `api`. Empty: all of them. Fewer need engines "
            "that several processes can share."
        ),
    ] = ()
    store: Annotated[
        str,
        _about(
            "Engine of people, chats and messages: `embedded:`, or `dynamodb://` for Amazon's own service, with "
            "`?region=R`, `&prefix=P` for the names of the tables, and `&endpoint=URL` for another address."
        ),
    ] = EMBEDDED
    events: Annotated[
        str,
        _about("Engine of the event log: `embedded:`, or `kafka://host:9092,host:9092`, with `?prefix=P` if need be."),
    ] = EMBEDDED
    events_fragile_in_prod: Annotated[
        bool,
        _about(
            "Allows topics in `prod` that do not survive the loss of a broker: fewer than three copies, or fewer than "
            "two that must be in sync."
        ),
    ] = False
    directory: Annotated[
        str,
        _about(
            "Engine of routing, presence and caches: `embedded:`, or `redis://host:6379`, `rediss://` for TLS, "
            "`redis+sentinel://`."
        ),
    ] = EMBEDDED
    ingest: Annotated[
        tuple[str, ...],
        _about(
            "Where gateways and REST find the ingest processes: `host:port` each, or one `dns:name:port`, whose every "
            "address is one of them. Empty: in this process."
        ),
    ] = ()
    rpc: Annotated[
        str,
        _about("`host:port` on which an ingest process that does not run alone takes gateways and REST."),
    ] = "127.0.0.1:8082"
    rpc_token: Annotated[
        str,
        _about("A secret that all processes of a deployment share. Calls without it are refused.", secret=True),
    ] = ""
    rpc_tls_cert: Annotated[
        str, _about("PEM file with this process's certificate towards the others. Empty: no TLS between processes.")
    ] = ""
    rpc_tls_key: Annotated[str, _about("PEM file with that certificate's private key.")] = ""
    rpc_tls_ca: Annotated[str, _about("PEM file with the authority that signed the certificates of all processes.")] = (
        ""
    )
    otp_sender: Annotated[
        Literal["log"], _about("How one-time codes reach people. `log` prints them to the console of the server.")
    ] = "log"
    otp_log_in_prod: Annotated[
        bool, _about("Allows `otp_sender` `log` in `prod`: a reader of the console can then sign in as any user.")
    ] = False
    refresh_reuse_leeway_seconds: Annotated[
        int,
        _about(
            "For so long the previous refresh token still works on its device, for clients that lost an answer.",
            unit="seconds",
            ge=0,
            le=60,
        ),
    ] = 0
    sweep_seconds: Annotated[
        int, _about("How often some of what has expired is removed from the data folder.", unit="seconds", ge=1, le=60)
    ] = 1

    @property
    def data_folder(self) -> Path:
        return Path(self.data)

    @property
    def keys_folder(self) -> Path:
        return Path(self.keys) if self.keys else self.data_folder / "keys"

    @property
    def here(self) -> Sequence[ProcessRole]:
        """The roles of this process."""
        return tuple(role for role in ALL_ROLES if role in self.roles) or ALL_ROLES

    @property
    def is_distributed(self) -> bool:
        return self.store != EMBEDDED or self.here != ALL_ROLES

    @property
    def rpc_address(self) -> "HostPort | None":
        """None when no other process can use the ingest of this one."""
        alone = self.here == ALL_ROLES and not self.ingest
        return None if alone or ProcessRole.INGEST not in self.here else address(self.rpc)

    @property
    def internal_address(self) -> "HostPort | None":
        return None if self.internal == OFF else address(self.internal)


class HostPort(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> HostPort:
    """`host:port`, an IPv6 host in brackets. Raises `ValueError`."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and colon and port.isascii() and port.isdecimal() and int(port) <= 65_535):
        raise ValueError(f"{text!r} is no address")
    return HostPort(host, int(port))


# --- one setting, as help, documentation and error messages need it ---------------------------------------------------


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: Any  # a type annotation, for `msgspec.convert`
    default: object
    description: str
    unit: str
    takes: str
    secret: bool

    @property
    def variable(self) -> str:
        return f"SERIATIM_{self.name.upper()}"

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def is_list(self) -> bool:
        return isinstance(self.default, tuple)


def all_settings() -> Sequence[Setting]:
    hints = typing.get_type_hints(Settings, include_extras=True)
    return [_setting(field.name, hints[field.name], field.default) for field in msgspec.structs.fields(Settings)]


def _setting(name: str, kind: Any, default: object) -> Setting:
    plain, about = typing.get_args(kind)
    return Setting(
        name=name,
        kind=kind,
        default=default,
        description=about.description,
        unit=about.extra["unit"],
        takes=_takes(plain, about),
        secret=about.extra["secret"],
    )


def _takes(plain: Any, about: Meta) -> str:
    if typing.get_origin(plain) is Literal:
        choices = typing.get_args(plain)
        return f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    if plain is bool:
        return "true or false"
    if plain is int:
        return f"a whole number from {about.ge} to {about.le}"
    if plain == tuple[ProcessRole, ...]:
        return f"a list of {', '.join(ALL_ROLES)}"
    return "text" if plain is str else "a list of texts"
