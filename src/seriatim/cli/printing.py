"""What the tools print: results to stdout, progress to stderr, fit for narrow terminals, pipes and `| head`."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from seriatim.domain.times import iso

WIDTH = 120  # of what is printed when there is no terminal to ask
_PROGRESS_EVERY_S = 0.1


class Screen(Console):
    """Leaves a broken pipe to `quiet_pipe`, where rich would end the program with an exit code of its own."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    return Screen(width=None if sys.stdout.isatty() else WIDTH, highlight=False)


def print_json(answer: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """A reader may stop early (`| head`): no traceback, and the exit code stays what it would be."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # At its end Python flushes once more, which would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def row_progress(title: str, *, wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, nothing anywhere else."""
    screen = Console(stderr=True)
    if not wanted or not screen.is_terminal:
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,} rows"))
    with Progress(*columns, TimeElapsedColumn(), console=screen, transient=True) as bar:
        task = bar.add_task(title, total=None)
        updated_at = 0.0

        def update(done: int, total: int) -> None:
            nonlocal updated_at
            now = time.monotonic()
            if now - updated_at >= _PROGRESS_EVERY_S:
                updated_at = now
                bar.update(task, completed=done, total=max(done, total))

        yield update


def print_rows(screen: Console, found: Sequence[Mapping[str, object]], *, right: Sequence[str] = ()) -> None:
    """A column for each field if they fit, else a line for each. `right`: the names of columns of numbers."""
    names = list(dict.fromkeys(name for row in found for name in row))
    texts = [[_text(name, row.get(name)) for name in names] for row in found]
    heads = [name.removesuffix("_ms") for name in names]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    if sum(widths) + 2 * len(widths) <= screen.width:
        for line in [heads, *texts]:
            cells = [
                text.rjust(width) if name in right else text.ljust(width)
                for name, text, width in zip(names, line, widths, strict=True)
            ]
            click.echo("  ".join(cells).rstrip())
        return
    for number, line in enumerate(texts):
        if number:
            click.echo()
        for head, text in zip(heads, line, strict=True):
            click.echo(f"{head}: {text}")


def human_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def _text(name: str, value: object) -> str:
    if value is None:
        return "-"
    if name.endswith("_ms") and isinstance(value, int):
        return iso(value)
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    # A name may hold a line break or an escape sequence; a terminal must not obey it.
    return str(value) if str(value).isprintable() else repr(value)[1:-1]
