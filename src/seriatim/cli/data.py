"""`seriatim data`: show, measure and compact a data folder."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from seriatim.cli.options import exit_with_error, load_or_exit, settings_options
from seriatim.cli.printing import console, human_bytes, print_json, print_rows, quiet_pipe, row_progress
from seriatim.runtime.tools.data_folder import TABLES, InspectionError, compact_stored, measure_stored, show_stored

ROWS_DEFAULT = 20
GLIMPSE_ROWS = 3  # of each table, when all are shown

_TABLES_HELP = textwrap.fill(", ".join(TABLES), width=74, initial_indent="  ", subsequent_indent="  ")
_SHOW_EPILOG = f"""\b
Tables:
{_TABLES_HELP}

\b
Examples:
  seriatim data show messages CHAT --after 100
  seriatim data show events --chat CHAT --json
"""


@click.group(short_help="Show, measure and compact a data folder.")
def data() -> None:
    """Show and measure what a data folder holds, also while the server runs; compact it."""


@data.command(epilog=_SHOW_EPILOG)
@click.argument("table", required=False)
@click.argument("chat", required=False)
@click.option("--chat", "of_chat", metavar="ID", help="Only rows of this chat. The same as CHAT.")
@click.option("--after", type=int, metavar="N", help="With a chat: only messages or events above this number.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"At most so many rows.  [default: {ROWS_DEFAULT}; of all tables {GLIMPSE_ROWS} each]",
)
@click.option("--content", is_flag=True, help="Show what people wrote.")
@click.option("--phones", is_flag=True, help="Show phone numbers in full.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@settings_options(only=("data",))
def show(
    table: str | None,
    chat: str | None,
    of_chat: str | None,
    after: int | None,
    limit: int | None,
    content: bool,
    phones: bool,
    as_json: bool,
    file: Path | None,
    **flags: str | None,
) -> None:
    """Print rows of TABLE, or a few of every table.

    Contents and phone numbers are hidden unless asked for; secrets are never shown, not even their digests.
    """
    path = load_or_exit(file, flags).settings.data_folder
    chat_id = chat or of_chat
    if table is not None and table not in TABLES:
        exit_with_error(f"there is no table {table!r}; the tables are {', '.join(TABLES)}")
    if chat is not None and of_chat is not None:
        exit_with_error("CHAT and --chat are the same: give one of them")
    if table is None and (chat_id is not None or after is not None):
        exit_with_error("name a table, such as: seriatim data show messages CHAT")
    found = show_stored(
        path,
        TABLES if table is None else (table,),
        chat_id=chat_id,
        after=after,
        limit=limit or (GLIMPSE_ROWS if table is None else ROWS_DEFAULT),
        content=content,
        phones=phones,
    )
    try:
        with quiet_pipe():
            for name, rows, more in found:
                _print_table(name, rows, more, as_json=as_json, titled=table is None)
    except InspectionError as reason:
        exit_with_error(reason)


@data.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@settings_options(only=("data",))
def stats(as_json: bool, file: Path | None, **flags: str | None) -> None:
    """Count rows and bytes by table, the largest chats, and the event log.

    Reads every row: about a second for a million.
    """
    path = load_or_exit(file, flags).settings.data_folder
    try:
        with row_progress("counting", wanted=not as_json) as progress:
            measured = measure_stored(path, progress=progress)
    except InspectionError as reason:
        exit_with_error(reason)
    with quiet_pipe():
        if as_json:
            print_json(measured)
            return
        screen = console()
        click.echo(f"{path}: format {measured.format}, {human_bytes(measured.disk_bytes)} on the disk\n")
        tables = [
            {"table": name, "rows": f"{each.rows:,}", "size": human_bytes(each.bytes)}
            for name, each in measured.tables.items()
        ]
        print_rows(screen, tables, right=("rows", "size"))
        if measured.largest_chats:
            click.echo("\nlargest chats")
            chats = [
                {"chat": each.chat_id, "slots": f"{each.slots:,}", "size": human_bytes(each.bytes)}
                for each in measured.largest_chats
            ]
            print_rows(screen, chats, right=("slots", "size"))
        if measured.topics:
            click.echo("\nevent log")
            topics = [
                {
                    "topic": each.topic,
                    "partitions": each.partitions,
                    "written": f"{each.written:,}",
                    "kept": f"{each.kept:,}",
                    "lag": ", ".join(f"{group} {lag:,}" for group, lag in each.lag.items()) or None,
                }
                for each in measured.topics
            ]
            print_rows(screen, topics, right=("partitions", "written", "kept"))


@data.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@settings_options(only=("data",))
def compact(as_json: bool, file: Path | None, **flags: str | None) -> None:
    """Rewrite all files without the rows that were replaced or removed. Stop the server first.

    It may take minutes, and needs as much free room as the data take. Interrupted, it loses nothing.
    """
    path = load_or_exit(file, flags).settings.data_folder
    try:
        done = compact_stored(path)
    except InspectionError as reason:
        exit_with_error(reason)
    freed = done.bytes_before - done.bytes_after
    if as_json:
        print_json({"bytes_before": done.bytes_before, "bytes_after": done.bytes_after, "bytes_freed": freed})
    elif freed > 0:
        click.echo(f"{human_bytes(freed)} freed: {human_bytes(done.bytes_before)} -> {human_bytes(done.bytes_after)}")
    else:
        click.echo(f"Nothing to free: {human_bytes(done.bytes_after)} are in use.")


def _print_table(name: str, rows: Sequence[dict[str, object]], more: bool, *, as_json: bool, titled: bool) -> None:
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode({"table": name, **row}).decode())
        return
    if titled:
        count = f"the first {len(rows)}" if more else len(rows) or "none"
        click.echo(f"\n{name}: {count}")
    if rows:
        print_rows(console(), rows)
    if not titled:
        count = f"{len(rows)} row{'s' * (len(rows) != 1)}"
        click.echo(f"({count}, and there are more: see --limit)" if more else f"({count})", err=True)
