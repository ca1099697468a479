"""`seriatim tables`: the tables of a deployment on DynamoDB, made once and compared with what they should be."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from seriatim.cli.options import exit_with_error
from seriatim.cli.printing import console, print_json, print_rows, quiet_pipe
from seriatim.domain.errors import SeriatimError
from seriatim.engines.dynamodb.table_control import DynamoTableControl
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations.retries import RetryingTableControl
from seriatim.operations.tables import TABLES, TableDifference
from seriatim.operations.tables import create as create_tables
from seriatim.operations.tables import verify as verify_tables
from seriatim.ports.clock import Clock
from seriatim.ports.tables import TableControl
from seriatim.runtime.wiring.dynamodb import StoreUnreachable, dynamodb

DIFFERENT = 1  # exit code

_EPILOG = "Exit code: 0 every table is as it should be, 1 one is not, 2 DynamoDB could not be asked."

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def tables() -> None:
    """Make and verify the eleven tables of a deployment on DynamoDB."""


def _where(command: Command) -> Command:
    """The options that say which tables are meant."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead."),
        click.option("--prefix", default="", metavar="TEXT", help="What the names of the tables begin with."),
        click.option("--region", metavar="NAME", help="AWS region.  [default: that of the AWS profile]"),
        click.option("--url", metavar="URL", help="Another address than Amazon's, such as http://localhost:8000."),
    ):
        command = option(command)
    return command


@tables.command(epilog=_EPILOG)
@_where
def create(url: str | None, region: str | None, prefix: str, as_json: bool) -> None:
    """Make the tables that are missing, and mend what can be changed in place.

    Tables that are there keep their rows. May be repeated at any time, also while servers run. A lost connection is
    tried again a few times.
    """

    async def work(control: TableControl, clock: Clock) -> tuple[list[str], list[TableDifference]]:
        report: Callable[[str], None] = lambda line: None if as_json else click.echo(line, err=True)  # noqa: E731
        retrying = RetryingTableControl(control, clock, report)
        made = await create_tables(retrying, clock, prefix=prefix, report=report)
        return list(made), list(await verify_tables(retrying, prefix=prefix))

    made, differences = _run(work, url, region)
    _finish(differences, {"made": made}, f"{len(made)} tables made", as_json=as_json)


@tables.command(epilog=_EPILOG)
@_where
def verify(url: str | None, region: str | None, prefix: str, as_json: bool) -> None:
    """Compare the tables with what they should be. Changes nothing."""

    async def work(control: TableControl, clock: Clock) -> list[TableDifference]:
        return list(await verify_tables(control, prefix=prefix))

    _finish(_run(work, url, region), {}, f"{len(TABLES)} tables compared", as_json=as_json)


def _run(work: Callable[[TableControl, Clock], Awaitable[T]], url: str | None, region: str | None) -> T:
    async def run() -> T:
        clock = SystemClock()
        async with dynamodb(url, region, clock) as client:
            return await work(DynamoTableControl(client), clock)

    try:
        return asyncio.run(run())
    except StoreUnreachable as reason:
        exit_with_error(reason)
    except SeriatimError as error:
        exit_with_error(error.log_reason)


def _finish(differences: list[TableDifference], answer: dict[str, object], done: str, *, as_json: bool) -> None:
    with quiet_pipe():
        if as_json:
            print_json({**answer, "differences": differences})
        else:
            if differences:
                print_rows(
                    console(),
                    [
                        {"table": each.table, "what": each.what, "expected": each.expected, "found": each.found}
                        for each in differences
                    ],
                )
            verdict = f"{len(differences)} differences" if differences else "all as they should be"
            click.echo(f"{done}: {verdict}.")
    sys.exit(DIFFERENT if differences else 0)
