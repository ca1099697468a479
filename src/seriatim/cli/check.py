"""`seriatim check`: do the stored data keep their promises? Also while the server runs."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seriatim.cli.options import load_or_exit, refuse, settings_options
from seriatim.cli.printing import console, print_json, quiet_pipe, row_progress
from seriatim.domain.limits import CHECK_RECHECK_S
from seriatim.operations.findings import Report
from seriatim.operations.invariants import INVARIANTS
from seriatim.runtime.inside import CannotLook, check_stored

VIOLATED, INTERRUPTED = 1, 130  # exit codes

_EPILOG = "Exit code: 0 every invariant holds, 1 one is violated, 2 the data could not be checked."


@click.command(epilog=_EPILOG)
@settings_options(only=("data",))
@click.option(
    "--recheck-seconds",
    type=click.FloatRange(min=0),
    default=CHECK_RECHECK_S,
    show_default=True,
    help="What looks wrong is looked at again after so long: a write in flight is no violation.",
)
@click.option("--tests", is_flag=True, help="Also list the invariants that rows cannot show, and the tests that do.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def check(file: Path | None, recheck_seconds: float, tests: bool, as_json: bool, **flags: str | None) -> None:
    """Look at every row that is stored, and check the invariants that rows can show.

    Nothing is changed, and a server on the same folder goes on undisturbed.
    """
    path = load_or_exit(file, flags).settings.data_folder
    try:
        with row_progress("checking", wanted=not as_json) as progress:
            report = check_stored(path, recheck_s=recheck_seconds, progress=progress)
    except CannotLook as reason:
        refuse(reason)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)  # and not with 1: nothing was found
    with quiet_pipe():
        if as_json:
            print_json(_answer(path, report, tests))
        else:
            _print(console(), path, report, tests)
    sys.exit(VIOLATED if report.violations else 0)


def _answer(path: Path, report: Report, tests: bool) -> dict[str, object]:
    answer: dict[str, object] = {
        "data": str(path),
        "rows": report.rows,
        "violations": report.violations,
        "withdrawn": report.withdrawn,
        "invariants": report.lines,
        "shown": report.shown,
    }
    if tests:
        answer["tested"] = [each for each in INVARIANTS.values() if each.shown_by]
    return answer


def _print(screen: Console, path: Path, report: Report, tests: bool) -> None:
    table = Table(title=f"Invariants of {path}", title_justify="left")
    table.add_column("id", no_wrap=True)
    table.add_column("invariant", overflow="fold")
    table.add_column("record", no_wrap=True)
    table.add_column("looked at", justify="right", no_wrap=True)
    table.add_column("violations", justify="right", no_wrap=True)
    for line in report.lines:
        style = "bold red" if line.violations else "green"
        number = Text(f"{line.violations:,}", style=style)
        table.add_row(line.invariant, line.name, line.source, f"{line.looked_at:,}", number)
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


def _print_verdict(screen: Console, report: Report) -> None:
    kinds = sum(line.violations > 0 for line in report.lines)
    withdrawn = f" ({report.withdrawn:,} looked wrong for a moment: writes in flight)" if report.withdrawn else ""
    if report.violations:
        verdict = Text(f"{report.violations:,} violations of {kinds} invariants", style="bold red")
    else:
        verdict = Text("Every invariant holds", style="bold green")
    screen.print(Text("\n").append_text(verdict).append(f" in {report.rows:,} rows.{withdrawn}"), soft_wrap=True)
