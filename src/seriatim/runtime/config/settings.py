"""Every setting of the server: its meaning, its default, its unit, and what is allowed together with what.

Nothing here reads a file or the environment; `sources` does. What must not be configured is in `domain.limits`.
"""

import re
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from seriatim.domain.addresses import is_loopback, parse_networks
from seriatim.runtime.config.roles import ALL_ROLES, ProcessRole

EMBEDDED = "embedded:"
OFF = "off"
DNS = "dns:"


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


# --- what is allowed together with what -------------------------------------------------------------------------------


class SettingProblem(msgspec.Struct, frozen=True):
    name: str
    why: str


def validate(settings: Settings) -> Iterator[SettingProblem]:
    """All that prevents a start, as far as the settings alone show it."""
    yield from _addresses(settings)
    yield from _engines(settings)
    yield from _between_processes(settings)
    yield from _tls(settings, ("tls_cert", "tls_key"))
    yield from _tls(settings, ("rpc_tls_cert", "rpc_tls_key", "rpc_tls_ca"))
    for name in ("data", "host"):
        if not getattr(settings, name):
            yield SettingProblem(name, "must not be empty")
    if settings.instance and _INSTANCE.fullmatch(settings.instance) is None:
        yield SettingProblem("instance", "takes letters, digits, dots, dashes and underscores, 64 at most")
    if settings.env == "prod" and ProcessRole.API in settings.here and not settings.otp_log_in_prod:
        yield SettingProblem(
            "otp_sender",
            "prints one-time codes to the console, and a reader of the console can sign in as any user; in prod that "
            "needs otp_log_in_prod = true (no sender of text messages is built in yet)",
        )


def validate_for_inspection(settings: Settings) -> Iterator[SettingProblem]:
    """The same for a tool that reads what is stored: it needs a store, perhaps an event log, and serves no clients.

    An embedded event log is part of an embedded store. Beside another store it means that there is none to read.
    """
    unknown = list(_unknown_engines(settings, ("store", "events")))
    yield from unknown
    if not unknown and settings.store == EMBEDDED != settings.events:
        yield SettingProblem(
            "store", f"is {EMBEDDED}, and events is not: its events are in the store itself. Give both, or none"
        )
    if not settings.data:
        yield SettingProblem("data", "must not be empty")


def _addresses(settings: Settings) -> Iterator[SettingProblem]:
    if settings.internal != OFF:
        try:
            internal = address(settings.internal)
        except ValueError:
            yield SettingProblem("internal", f"{settings.internal!r} is neither host:port nor off")
        else:
            if internal.port and internal == HostPort(settings.host, settings.port):
                yield SettingProblem("internal", f"{settings.internal} is also the public address; take another port")
    for network in settings.trusted_proxies:
        try:
            parse_networks((network,))
        except ValueError:
            yield SettingProblem("trusted_proxies", f"{network!r} is no network such as 10.0.0.0/8 or ::1/128")
    for name in ("origins", "cors_origins"):
        for origin in getattr(settings, name):
            if _ORIGIN.fullmatch(origin) is None and (name, origin) != ("cors_origins", "*"):
                yield SettingProblem(
                    name, f"{origin!r} is no web origin such as https://chat.example: no path, no slash at the end"
                )


_SCHEMES = {
    "store": ("dynamodb",),
    "events": ("kafka",),
    "directory": ("redis", "rediss", "redis+sentinel", "rediss+sentinel"),
}
ENGINE_USERS = {
    "store": (ProcessRole.INGEST, ProcessRole.FANOUT, ProcessRole.API),
    "events": (ProcessRole.INGEST, ProcessRole.FANOUT, ProcessRole.API),
    "directory": (ProcessRole.GATEWAY, ProcessRole.FANOUT, ProcessRole.API),
}


def _engines(settings: Settings) -> Iterator[SettingProblem]:
    given = [name for name in _SCHEMES if getattr(settings, name) != EMBEDDED]
    unknown = list(_unknown_engines(settings, given))
    yield from unknown
    needed = [name for name, users in ENGINE_USERS.items() if any(role in settings.here for role in users)]
    absent = [name for name in needed if name not in given]
    if absent and not unknown and len(absent) < len(needed):
        yield SettingProblem(
            absent[0],
            f"is {EMBEDDED}, and others are not: other processes cannot see what one process keeps in itself. Give all "
            f"of {', '.join(needed)}" + (", or none" if settings.here == ALL_ROLES else ""),
        )
    elif absent and not unknown and settings.here != ALL_ROLES:
        yield SettingProblem(
            "roles",
            f"cannot be split on {EMBEDDED}, which only one process can open; `seriatim serve` runs all of them, and "
            f"{' and '.join(settings.here)} alone need{'s' * (len(settings.here) == 1)} "
            + ", ".join(f"{name} = {_SCHEMES[name][0]}://..." for name in needed),
        )


def _unknown_engines(settings: Settings, names: Sequence[str]) -> Iterator[SettingProblem]:
    for name in names:
        address = getattr(settings, name)
        if address != EMBEDDED and address.partition("://")[0] not in _SCHEMES[name]:
            yield SettingProblem(name, f"takes {EMBEDDED} or {_SCHEMES[name][0]}://, and this is neither")


def _between_processes(settings: Settings) -> Iterator[SettingProblem]:
    if not settings.is_distributed:
        if settings.ingest:
            yield SettingProblem("ingest", f"has no use on {EMBEDDED}: everything runs in this process")
    elif (
        not settings.ingest
        and ProcessRole.INGEST not in settings.here
        and {ProcessRole.GATEWAY, ProcessRole.API} & {*settings.here}
    ):
        yield SettingProblem("ingest", "is empty, and no ingest runs in this process: say where the others are")
    for place in settings.ingest:
        try:
            if not address(place.removeprefix(DNS)).port:
                raise ValueError("a port is a number above 0")
        except ValueError:
            yield SettingProblem("ingest", f"{place!r} is neither host:port nor dns:name:port")
    if len(settings.ingest) > 1 and any(place.startswith(DNS) for place in settings.ingest):
        yield SettingProblem("ingest", "is a list of addresses, or one dns:name:port")
    try:
        rpc = address(settings.rpc)
    except ValueError:
        yield SettingProblem("rpc", f"{settings.rpc!r} is no host:port")
        return
    protected = settings.rpc_token or settings.rpc_tls_ca
    if settings.is_distributed and settings.rpc_address is not None and not protected and not is_loopback(rpc.host):
        yield SettingProblem(
            "rpc_token",
            f"is empty, and {settings.rpc} may be reached from other machines: a caller there can write as "
            "any user. Give all processes the same secret, or rpc_tls_cert, rpc_tls_key and rpc_tls_ca",
        )


def _tls(settings: Settings, names: Sequence[str]) -> Iterator[SettingProblem]:
    given = [name for name in names if getattr(settings, name)]
    if given:
        for name in names:
            if name not in given:
                yield SettingProblem(name, f"is missing: {', '.join(names)} are given together, or none is")
    for name in given:
        path = getattr(settings, name)
        if not Path(path).is_file():
            yield SettingProblem(name, f"there is no file {path}")


_INSTANCE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-fA-F:]+\](:[0-9]{1,5})?")
