"""`seriatim counters`: the one repair that stored data may need, done by a careful program and not by hand."""

from pathlib import Path

import click

from seriatim.cli.options import exit_with_error, load_or_exit, settings_options
from seriatim.cli.printing import print_json
from seriatim.domain import limits
from seriatim.domain.ids import is_id
from seriatim.operations.counter_repair import Repair
from seriatim.runtime.config.validation import validate_for_inspection
from seriatim.runtime.tools.data_folder import InspectionError

MARGIN_MAX = 1000  # more than any process can have been given and not yet used


@click.group()
def counters() -> None:
    """Rebuild the counter of a chat that has lost it."""


@counters.command(epilog="Exit code: 0 done, 2 refused: then a line says why, and nothing was changed.")
@click.option("--chat", "chat_id", required=True, metavar="ID", help="The chat that is halted. The log names it.")
@click.option(
    "--margin",
    type=click.IntRange(min=0, max=MARGIN_MAX),
    default=0,
    show_default=True,
    help="Numbers to skip above the highest that any client has seen.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@settings_options(only=("data", "store", "events"))
def repair(chat_id: str, margin: int, dry_run: bool, as_json: bool, file: Path | None, **flags: str | None) -> None:
    """Rebuild a missing counter, above every stored slot, published event and watermark of the chat.

    Refused while the counter exists, or while the chat is still written to: it watches for ten seconds. Servers may go
    on; the one on a data folder does the work itself. Of a deployment on DynamoDB give --store and --events as its
    servers have them, and the rights of an operator.
    """
    if not is_id(chat_id):
        exit_with_error(f"{chat_id!r} is no id of a chat")
    settings = load_or_exit(file, flags, validator=validate_for_inspection).settings
    from seriatim.runtime.tools.counter_repair import RepairRequest
    from seriatim.runtime.tools.message_trace import repair_counter

    click.echo(f"Looking whether {chat_id} is quiet: {limits.RECOVERY_QUIET_S:.0f} s and a little.", err=True)
    try:
        done = repair_counter(settings, RepairRequest(chat_id=chat_id, margin=margin, dry_run=dry_run))
    except InspectionError as reason:
        exit_with_error(reason)
    if as_json:
        print_json({"dry_run": dry_run, "repair": done})
    else:
        _print(done, dry_run)


def _print(done: Repair, dry_run: bool) -> None:
    click.echo(
        f"Found: highest slot {done.newest_slot}, highest event {done.published}, highest watermark {done.watermark}."
    )
    skipped = done.allocated - done.newest_slot
    if dry_run:
        click.echo(f"A repair would set the counter to {done.allocated} and close {skipped} slots below it.")
    else:
        click.echo(
            f"The counter is {done.allocated}, {len(done.sealed)} slots below it are closed: the next message is "
            f"number {done.allocated + 1}."
        )
