"""`seriatim gateway`, `ingest`, `fanout` and `api`: one part of the system as a process of its own."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from seriatim.cli.options import exit_with_error, load_or_exit, settings_options
from seriatim.runtime.config.sources import load

_EPILOG = "Settings also come from a file and from the environment, the same for all roles: see `seriatim config doc`."
_EVERYWHERE = ("env", "internal", "instance", "log_format", "log_level")
_PUBLIC = ("host", "port", "tls_cert", "tls_key", "trusted_proxies", "connections_per_address_max", "data", "keys")
_BETWEEN = ("rpc_token", "rpc_tls_cert", "rpc_tls_key", "rpc_tls_ca")
_EVENTS = ("events", "events_fragile_in_prod")


def start(file: Path | None, flags: dict[str, str | None]) -> None:
    """Serves until a signal; ends the program."""
    loaded = load_or_exit(file, flags)
    # After the settings: a mistake there need not wait for these imports.
    from seriatim.runtime.server.lifecycle import StartupError
    from seriatim.runtime.server.process import run

    try:
        code = run(loaded.settings, lambda: load(flags, os.environ, file=file).settings)
    except StartupError as reason:
        exit_with_error(reason)
    sys.exit(code)


def _options(*names: str, also: Sequence[str] = ()) -> Sequence[str]:
    return (*_EVERYWHERE, *names, *also)


@click.command(short_help="Run a gateway: the WebSockets of clients.", epilog=_EPILOG)
@settings_options(only=_options("origins", "directory", "ingest", also=(*_PUBLIC, *_BETWEEN)))
def gateway(file: Path | None, **flags: str | None) -> None:
    """Hold the WebSockets of clients. Start as many as there are clients for.

    Needs Redis, the public keys of the REST processes, and at least one ingest process. Knows neither the store nor
    the event log. At the end every client is asked to connect elsewhere.

    Exit code: 0 stopped by a signal, 1 a part of it died, 2 it could not start.
    """
    start(file, {**flags, "roles": "gateway"})


@click.command(short_help="Run an ingest: stores and publishes messages.", epilog=_EPILOG)
@settings_options(only=_options("store", *_EVENTS, "rpc", also=_BETWEEN))
def ingest(file: Path | None, **flags: str | None) -> None:
    """Store and publish messages: the only part that does. Start two or more.

    Needs DynamoDB and Kafka. Gateways find it at the address of --rpc. At the end they are asked to go elsewhere, and
    what was taken is stored.

    Exit code: 0 stopped by a signal, 1 a part of it died, 2 it could not start.
    """
    start(file, {**flags, "roles": "ingest"})


@click.command(short_help="Run a fanout worker: pushes to connected members.", epilog=_EPILOG)
@settings_options(only=_options("store", *_EVENTS, "directory"))
def fanout(file: Path | None, **flags: str | None) -> None:
    """Read the event log and push messages to the gateways of those who are connected. Start two or more.

    Needs Kafka, Redis, and the members of chats from DynamoDB, where it writes nothing. At the end it leaves its group,
    and the others take over.

    Exit code: 0 stopped by a signal, 1 a part of it died, 2 it could not start.
    """
    start(file, {**flags, "roles": "fanout"})


_API = (
    *("cors_origins", "otp_sender", "otp_log_in_prod", "refresh_reuse_leeway_seconds"),
    *("store", *_EVENTS, "directory", "ingest"),
)


@click.command(short_help="Run REST: sign-in, users, chats, history, docs.", epilog=_EPILOG)
@settings_options(only=_options(*_API, also=(*_PUBLIC, *_BETWEEN)))
def api(file: Path | None, **flags: str | None) -> None:
    """Serve REST: sign-in, people, chats, history and documentation. Start two or more.

    Needs DynamoDB, Kafka, Redis and at least one ingest process. Makes the signing keys if there are none. At the end
    requests under way are finished.

    Exit code: 0 stopped by a signal, 1 a part of it died, 2 it could not start.
    """
    start(file, {**flags, "roles": "api"})
