"""`seriatim cluster`: the distributed system on one machine, to see it work and to break it."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seriatim.cli.options import exit_with_error, load_or_exit, print_error, settings_options
from seriatim.cli.printing import console, print_json, print_rows
from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.config.settings import Settings

if TYPE_CHECKING:
    from seriatim.runtime.server.cluster import ClusterMember, ClusterSizes, LocalCluster

_ENGINES = ("store", "events", "directory")


@click.command(
    short_help="Run all roles as processes of one machine, to try them out.",
    epilog="`make engines` starts the engines it needs and prints their addresses as settings.",
)
@click.option("--gateways", type=click.IntRange(1, 20), default=2, show_default=True)
@click.option("--ingests", type=click.IntRange(1, 20), default=2, show_default=True)
@click.option("--fanouts", type=click.IntRange(1, 20), default=2, show_default=True)
@click.option("--apis", type=click.IntRange(1, 10), default=1, show_default=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("seriatim-cluster"),
    show_default=True,
    help="For keys and logs. Nothing else is stored here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when all are there.")
@settings_options(only=("env", "port", "log_level", *_ENGINES))
def cluster(
    gateways: int,
    ingests: int,
    fanouts: int,
    apis: int,
    folder: Path,
    as_json: bool,
    file: Path | None,
    **flags: str | None,
) -> None:
    """Make tables and topics, start every role as processes of its own, and restart those that die.

    For trying out: REST listens on --port, the gateways ten above it, all on this machine alone. In production an
    orchestrator does this.

    Exit code: 0 stopped by a signal, 2 it could not start.
    """
    settings = load_or_exit(file, flags).settings
    if not settings.is_distributed:
        exit_with_error(f"give {', '.join(f'--{name}' for name in _ENGINES)}: several processes cannot share a folder")
    from seriatim.runtime.server.cluster import ClusterSizes
    from seriatim.runtime.server.lifecycle import StartupError

    sizes = ClusterSizes(gateways=gateways, ingests=ingests, fanouts=fanouts, apis=apis)
    try:
        asyncio.run(_run(settings, folder.absolute(), sizes, as_json=as_json))
    except StartupError as reason:
        exit_with_error(reason)


async def _run(settings: Settings, folder: Path, sizes: "ClusterSizes", *, as_json: bool) -> None:
    from seriatim.engines.inprocess.clock import SystemClock
    from seriatim.runtime.server.cluster import LocalCluster
    from seriatim.runtime.wiring.prepare import prepare

    await prepare(settings, "single", SystemClock(), _report)
    processes = LocalCluster(settings, folder, sizes, _report)
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    stopping = asyncio.create_task(stop.wait())
    running = asyncio.create_task(_start_and_run(processes, as_json=as_json))
    try:
        await asyncio.wait((stopping, running), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        for task in (stopping, running):
            task.cancel()
            await asyncio.wait((task,))
        _report("stopping, from the outside in; messages that were acknowledged are safe")
        await processes.stop()


async def _start_and_run(processes: "LocalCluster", *, as_json: bool) -> None:
    await processes.start()
    if as_json:
        print_json({"members": processes.members})
    else:
        print_rows(console(), [_row(member) for member in processes.members], right=("pid",))
        logs = Path(processes.members[0].log).parent
        click.echo(f"\nLogs are in {logs}. Ctrl-C stops them all; whatever you kill is started again.")
    sys.stdout.flush()
    await processes.run()


def _row(member: "ClusterMember") -> dict[str, object]:
    scheme = {ProcessRole.API: "http", ProcessRole.GATEWAY: "ws"}.get(member.role)
    path = "/v1/ws" if member.role is ProcessRole.GATEWAY else ""
    return {
        "process": member.name,
        "address": f"{scheme}://127.0.0.1:{member.port}{path}" if scheme else None,
        "health": f"http://127.0.0.1:{member.internal_port}/health/ready",
        "pid": member.pid,
    }


def _report(line: str) -> None:
    print_error(line, kind="Note")
