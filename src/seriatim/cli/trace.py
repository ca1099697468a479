"""`seriatim trace`: where is a message? For an operator whose user misses one."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from seriatim.cli.options import exit_with_error, load_or_exit, settings_options
from seriatim.cli.printing import console, print_json, print_rows, quiet_pipe
from seriatim.operations.message_trace import MemberTrace, MessageTrace, TraceStep
from seriatim.runtime.config.validation import validate_for_inspection
from seriatim.runtime.tools.data_folder import InspectionError

NOT_ARRIVED = 1  # exit code

_EPILOG = """\b
Exit code: 0 the servers have done all that they can for it, 1 it stopped on its way, 2 the stores could not be read.

\b
Examples:
  seriatim trace --chat CHAT --sequence 42
  seriatim trace --chat CHAT --client-message-id ID --json
"""


@click.command(short_help="Follow one message from its sender to its readers.", epilog=_EPILOG)
@click.option("--chat", "chat_id", required=True, metavar="ID", help="The chat it belongs to.")
@click.option("--sequence", type=click.IntRange(min=1), metavar="N", help="Its number in the chat.")
@click.option("--client-message-id", metavar="ID", help="Instead of the number: the id that its sender gave it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@settings_options(only=("data", "store", "events", "directory"))
def trace(
    chat_id: str,
    sequence: int | None,
    client_message_id: str | None,
    as_json: bool,
    file: Path | None,
    **flags: str | None,
) -> None:
    """Follow one message: given a number, stored, published, fanned out, and who has it.

    Nothing is changed, and it may run while servers work. What people wrote is never shown. Of a deployment on
    DynamoDB give the same --store, --events and --directory as its servers have.
    """
    if (sequence is None) == (client_message_id is None):
        exit_with_error("give --sequence or --client-message-id, and not both")
    settings = load_or_exit(file, flags, validator=validate_for_inspection).settings
    from seriatim.runtime.tools.message_trace import trace as follow

    try:
        if sequence is not None:
            found = follow(settings, lambda tracer: tracer.by_sequence(chat_id, sequence))
        else:
            key = (client_message_id or "").lower()
            found = follow(settings, lambda tracer: tracer.by_key(chat_id, key))
    except InspectionError as reason:
        exit_with_error(reason)
    with quiet_pipe():
        if as_json:
            print_json(found)
        else:
            _print(console(), found)
    sys.exit(0 if found.arrived else NOT_ARRIVED)


def _print(screen: Console, found: MessageTrace) -> None:
    number = "" if found.sequence is None else f" number {found.sequence}"
    screen.print(Text(f"{found.chat_id}{number}", style="bold"))
    for step in found.steps:
        screen.print(_line(step), soft_wrap=True)
    if found.members:
        click.echo()
        print_rows(screen, [_row(each) for each in found.members], right=("watermark",))
    screen.print(Text(f"\n{found.advice}"), soft_wrap=True)


def _line(step: TraceStep) -> Text:
    word, style = {True: ("yes", "green"), False: ("no", "bold red"), None: ("?", "yellow")}[step.done]
    return Text(f"{step.name:<12}").append(f"{word:<5}", style).append(step.text)


def _row(member: MemberTrace) -> dict[str, object]:
    connected: object = "unknown"
    if member.connections is not None:
        connected = ", ".join(each.gateway_id for each in member.connections) or "no"
    return {
        "member": member.user_id,
        "role": member.role,
        "has it": "yes" if member.delivered else "not yet said",
        "watermark": member.watermark,
        "connected to": connected,
    }
