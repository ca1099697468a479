"""`seriatim serve`: the whole system in one process, on one port and one data folder."""

import sys
from pathlib import Path

import click

from seriatim.cli.options import load_or_exit, refuse, settings_options


@click.command(epilog="Settings also come from a file and from the environment: see `seriatim config doc`.")
@settings_options()
def serve(file: Path | None, **flags: str | None) -> None:
    """Serve WebSocket, REST and documentation on one port, durably, with nothing else to install.

    Stops on SIGTERM or Ctrl-C after telling every client; a second one ends at once. Nothing acknowledged is lost
    either way.

    Exit code: 0 stopped as told, 1 a part of the server died, 2 it could not start.
    """
    loaded = load_or_exit(file, flags)
    # After the settings: a mistake there need not wait for these imports.
    from seriatim.runtime.process import run
    from seriatim.runtime.server import CannotStart

    try:
        code = run(loaded.settings)
    except CannotStart as reason:
        refuse(reason)
    sys.exit(code)
