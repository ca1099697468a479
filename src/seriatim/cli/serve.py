"""`seriatim serve`: the whole system in one process, on one port and one data folder."""

from pathlib import Path

import click

from seriatim.cli.options import settings_options
from seriatim.cli.roles import start


@click.command(
    short_help="Run the whole server: WebSocket, REST and documentation.",
    epilog="Settings also come from a file and from the environment: see `seriatim config doc`.",
)
@settings_options()
def serve(file: Path | None, **flags: str | None) -> None:
    """Serve WebSocket, REST and documentation on one port, durably, with nothing else to install.

    With --store, --events and --directory the same on DynamoDB, Kafka and Redis, and with --roles only some of it.

    Stops on SIGTERM or Ctrl-C after every client was asked to reconnect; a second one ends at once. Nothing
    acknowledged is lost either way.

    Exit code: 0 stopped by a signal, 1 a part of the server died, 2 it could not start.
    """
    start(file, flags)
