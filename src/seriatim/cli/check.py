"""`seriatim check`: do the stored data keep their promises? Also while servers run."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seriatim.cli.options import exit_with_error, load_or_exit, settings_options
from seriatim.cli.printing import console, print_json, quiet_pipe, row_progress
from seriatim.domain import limits
from seriatim.operations.check.findings import CheckReport
from seriatim.operations.check.invariants import INVARIANTS
from seriatim.runtime.config.settings import EMBEDDED, Settings
from seriatim.runtime.config.sources import format_value
from seriatim.runtime.config.validation import validate_for_inspection
from seriatim.runtime.tools.data_folder import InspectionError, Progress, check_stored

VIOLATED, INTERRUPTED = 1, 130  # exit codes

_EPILOG = "Exit code: 0 every invariant holds, 1 one is violated, 2 the data could not be checked."


@click.command(short_help="Check the invariants of what is stored.", epilog=_EPILOG)
@settings_options(only=("data", "store", "events"))
@click.option(
    "--recheck-seconds",
    type=click.FloatRange(min=0),
    default=limits.CHECK_RECHECK_S,
    show_default=True,
    help="What seems wrong is read again after so long: a write in flight is no violation.",
)
@click.option("--tests", is_flag=True, help="Also list the invariants that rows cannot show, and the tests that do.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def check(file: Path | None, recheck_seconds: float, tests: bool, as_json: bool, **flags: str | None) -> None:
    """Read every stored row, and check the invariants that rows can show.

    Give the settings of the servers: the data folder, or the tables of --store and the topics of --events. Without
    --events only the tables are read.

    Nothing is changed, and it may run while servers work: they go on undisturbed. Of a large deployment it reads all
    that is there, which takes its time and the store's capacity.
    """
    settings = load_or_exit(file, flags, validator=validate_for_inspection).settings
    try:
        with row_progress("checking", wanted=not as_json) as progress:
            report = _look(settings, recheck_seconds, progress)
    except InspectionError as reason:
        exit_with_error(reason)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)  # and not with 1: nothing was found
    with quiet_pipe():
        if as_json:
            print_json({**_places(settings), **_answer(report, tests)})
        else:
            _print(console(), " and ".join(_places(settings).values()), report, tests)
    sys.exit(VIOLATED if report.violations else 0)


def _look(settings: Settings, recheck_s: float, progress: Progress) -> CheckReport:
    if settings.store == EMBEDDED:
        return check_stored(settings.data_folder, recheck_s=recheck_s, progress=progress)
    from seriatim.runtime.tools.inspection import check_shared

    events = None if settings.events == EMBEDDED else settings.events
    return check_shared(settings.store, events, recheck_s=recheck_s, progress=progress)


def _places(settings: Settings) -> dict[str, str]:
    """What was checked, by setting."""
    if settings.store == EMBEDDED:
        return {"data": str(settings.data_folder)}
    return {name: format_value(at) for name in ("store", "events") if (at := getattr(settings, name)) != EMBEDDED}


def _answer(report: CheckReport, tests: bool) -> dict[str, object]:
    answer: dict[str, object] = {
        "rows": report.rows,
        "violations": report.violations,
        "withdrawn": report.withdrawn,
        "invariants": report.lines,
        "shown": report.shown,
    }
    if tests:
        answer["tested"] = [each for each in INVARIANTS.values() if each.shown_by]
    return answer


def _print(screen: Console, where: str, report: CheckReport, tests: bool) -> None:
    table = Table(title=f"Invariants of {where}", title_justify="left")
    table.add_column("id", no_wrap=True)
    table.add_column("invariant", overflow="fold")
    table.add_column("record", no_wrap=True)
    table.add_column("looked at", justify="right", no_wrap=True)
    table.add_column("violations", justify="right", no_wrap=True)
    for line in report.lines:
        style = "bold red" if line.violations else "green"
        number = Text("" if line.not_looked_at else f"{line.violations:,}", style=style)
        looked_at = Text("not looked at" if line.not_looked_at else f"{line.looked_at:,}")
        table.add_row(line.invariant, line.name, line.source, looked_at, number)
    screen.print(table)
    for violation in report.shown:
        screen.print(Text(f"\n{violation.invariant} {INVARIANTS[violation.invariant].name}", style="bold red"))
        for text in (violation.subject, violation.what, violation.advice):
            screen.print(Text(f"  {text}"), soft_wrap=True)
    left_out = report.violations - len(report.shown)
    if left_out:
        screen.print(f"\n... and {left_out:,} more of these kinds.")
    if tests:
        _print_tests(screen)
    _print_verdict(screen, report)


def _print_tests(screen: Console) -> None:
    screen.print("\nWhat rows cannot show, these tests do:")
    for each in INVARIANTS.values():
        if each.shown_by:
            screen.print(Text(f"  {each.id} {each.name} ({each.source}): {each.statement}"), soft_wrap=True)
            for test in each.shown_by:
                screen.print(Text(f"    tests/{test}", style="dim"), soft_wrap=True)


def _print_verdict(screen: Console, report: CheckReport) -> None:
    kinds = sum(line.violations > 0 for line in report.lines)
    withdrawn = f" ({report.withdrawn:,} looked wrong for a moment: writes in flight)" if report.withdrawn else ""
    if report.violations:
        verdict = Text(f"{report.violations:,} violations of {kinds} invariants", style="bold red")
    else:
        some = " that was looked at" if any(line.not_looked_at for line in report.lines) else ""
        verdict = Text(f"Every invariant{some} holds", style="bold green")
    for reason in dict.fromkeys(line.not_looked_at for line in report.lines if line.not_looked_at):
        unseen = ", ".join(line.invariant for line in report.lines if line.not_looked_at == reason)
        screen.print(Text(f"\nNot looked at, since {reason}: {unseen}."), soft_wrap=True)
    screen.print(Text("\n").append_text(verdict).append(f" in {report.rows:,} rows.{withdrawn}"), soft_wrap=True)
