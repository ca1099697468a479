"""What `seriatim simulate` prints: progress, the summary, violations, hunted mutants, and the trace."""

import time
from collections.abc import Iterator, Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from seriatim.simulation.results import MutantResult, RunSummary, SeedViolation
from seriatim.simulation.trace import Trace

_PLAIN_LINE_EVERY_S = 10.0
_LANES_DRAWN_MAX = 24  # more columns would leave no room for the text
_COLORS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_yellow", "bright_blue")


def print_summary(console: Console, summary: RunSummary) -> None:
    table = Table(title=f"Simulation, profile {summary.profile}", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    seeds = "none" if summary.first_seed is None else f"{summary.first_seed}..{summary.last_seed}"
    for name, value in (
        ("schedules", f"{summary.schedules:,} (seeds {seeds})"),
        ("virtual hours", f"{summary.virtual_seconds / 3600:,.2f}"),
        ("sends", f"{summary.sends:,}"),
        ("acks", f"{summary.acks:,}"),
        ("faults", f"{sum(summary.faults.values()):,}"),
    ):
        table.add_row(name, value)
    for kind, count in sorted(summary.faults.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(f"  {kind}", f"{count:,}", style="dim")
    table.add_row("violations", Text(f"{len(summary.broken):,}", style="bold red" if summary.broken else "bold green"))
    table.add_row("schedules/s per core", f"{summary.schedules_per_core_s:,.1f}")
    table.add_row("  as many events on an empty loop", f"{summary.baseline_schedules_per_core_s:,.1f}", style="dim")
    table.add_row("  empty loop, events/s", f"{summary.baseline_events_per_s:,.0f}", style="dim")
    table.add_row("seconds", f"{summary.wall_s:,.1f}")
    console.print(table)
    if summary.interrupted:
        console.print("Interrupted: this is what was done until then.", style="yellow")


def print_violations(console: Console, summary: RunSummary, mutant: str | None = None) -> None:
    """The invariant, the explanation, and the command that replays it; once per seed and invariant."""
    seen: list[tuple[int, str]] = []
    for broken in summary.broken:
        which = (broken.seed, broken.violation.invariant)
        if which not in seen:
            seen.append(which)
            _print_violation(console, broken, replay_command(broken.seed, summary.profile, mutant))
    left_out = len(summary.broken) - len(seen)
    if left_out:
        console.print(f"... and {left_out:,} more of the same kinds in these seeds.", style="dim")


def print_mutants(console: Console, results: Sequence[MutantResult]) -> None:
    table = Table(title="Mutants: a rule removed, to see whether the checks notice", title_justify="left")
    for column in ("mutant", "rule it removes", "caught by", "at seed", "seeds tried"):
        table.add_column(column, justify="right" if column.endswith(("seed", "tried")) else "left")
    for result in results:
        caught = result.caught_by
        by = Text("not caught", style="bold red") if caught is None else Text(caught.violation.invariant, style="green")
        seed = "" if caught is None else str(caught.seed)
        table.add_row(result.name, result.removes, by, seed, str(result.seeds_tried))
    console.print(table)
    for result in results:
        if result.caught_by is not None:
            command = replay_command(result.caught_by.seed, result.profile, result.name)
            console.print(command, style="dim", soft_wrap=True, highlight=False)


def replay_command(seed: int, profile: str, mutant: str | None = None) -> str:
    mutated = f" --mutant {mutant}" if mutant else ""
    return f"seriatim simulate --seed {seed} --profile {profile}{mutated} --trace"


def trace_lines(trace: Trace, width: int) -> Iterator[Text]:
    """A column per process with a dot where the event happened, the name, and what it was."""
    columns = _columns(trace.lines)
    lanes = 1 + max(columns.values(), default=0)
    lanes_drawn = lanes if lanes <= _LANES_DRAWN_MAX else 0
    names = max((len(lane) for lane in columns), default=0)
    for at, lane, text in trace.lines:
        column = columns[lane]
        color = _COLORS[column % len(_COLORS)]
        line = Text(f"{at:10.4f} ", style="dim", no_wrap=True)
        for each in range(lanes_drawn):
            line.append("●" if each == column else "·", style=color if each == column else "dim")
        line.append(f" {lane:<{names}} ", style=color)
        line.append(text, style="bold red" if text.startswith("VIOLATION") else "default")
        line.truncate(width, overflow="ellipsis")
        yield line


class ProgressDisplay:
    """A bar on a terminal, a line every ten seconds anywhere else."""

    def __init__(self, console: Console, title: str, *, schedules: int | None, seconds: float | None) -> None:
        self._console = console
        self._title = title
        self._schedules = schedules
        self._seconds = seconds
        self._bar: Progress | None = None
        self._began = self._printed = time.monotonic()
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[news]}"))
            self._bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
            self._task = self._bar.add_task(title, total=schedules or seconds, news="")

    def __enter__(self) -> "ProgressDisplay":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, summary: RunSummary) -> None:
        now = time.monotonic()
        rate = summary.schedules / summary.wall_s if summary.wall_s else 0.0
        broken = f", {summary.broken_seeds} broken" if summary.broken else ""
        news = f"{summary.schedules:,} schedules, {rate:,.0f}/s{broken}"
        if self._bar is not None:
            done = summary.schedules if self._schedules is not None else now - self._began
            self._bar.update(self._task, completed=done, news=news)
        elif now - self._printed >= _PLAIN_LINE_EVERY_S:
            self._printed = now
            self._console.print(f"{self._title}: {news}", highlight=False)


def _print_violation(console: Console, broken: SeedViolation, command: str) -> None:
    violation = broken.violation
    console.print(Text(f"\nVIOLATION {violation.invariant}", style="bold red"))
    console.print(f"  seed {broken.seed}, at {violation.at:.3f} s", highlight=False)
    for line in violation.explanation.splitlines():
        console.print(Text(f"  {line}"), soft_wrap=True)
    console.print(Text(f"  replay: {command}", style="bold"), soft_wrap=True)


def _columns(lines: list[tuple[float, str, str]]) -> dict[str, int]:
    """Lanes get columns in order of appearance; all lives of one process share theirs."""
    columns: dict[str, int] = {}
    lanes: dict[str, int] = {}
    for _, lane, _ in lines:
        if lane not in lanes:
            lanes[lane] = columns.setdefault(lane.partition(".")[0], len(columns))
    return lanes
