"""Which settings may not go together: every problem that the settings alone can show, before anything is opened."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from seriatim.domain.addresses import is_loopback, parse_networks
from seriatim.runtime.config.roles import ALL_ROLES, ProcessRole
from seriatim.runtime.config.settings import DNS, EMBEDDED, ENGINE_USERS, OFF, HostPort, Settings, address


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
