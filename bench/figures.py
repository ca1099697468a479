"""What a bench found: a figure beside the bare baselines it was measured with, as a table and as JSON."""

import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence

import msgspec
from rich.console import Console
from rich.table import Table


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Something per second within one process, and the same work done bare."""

    name: str
    unit: str
    per_second: float
    baseline: str
    baseline_per_second: float

    @property
    def ratio(self) -> float:
        return self.per_second / self.baseline_per_second


def show(figures: Sequence[Figure], *, as_json: bool, title: str) -> None:
    if as_json:
        found = [{**msgspec.structs.asdict(each), "ratio": round(each.ratio, 3)} for each in figures]
        _print_json({"figures": found})
        return
    table = Table("what", "per second", "baseline", "per second", "ratio", title=title)
    for each in figures:
        table.add_row(
            f"{each.name} ({each.unit})",
            f"{each.per_second:,.0f}",
            each.baseline,
            f"{each.baseline_per_second:,.0f}",
            f"{each.ratio:.2f}",
        )
    Console().print(table)


# --- the whole server -------------------------------------------------------------------------------------------------


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One round of one measurement. `cpu_us`: what one unit of the value cost the measured process.

    Busy: share of its core that each side used.
    """

    value: float
    cpu_us: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    server_busy: float | None = None
    load_busy: float | None = None


def middle(samples: Sequence[Sample]) -> Sample:
    """The median of each number on its own."""

    def median(name: str) -> float | None:
        found = [value for each in samples if (value := getattr(each, name)) is not None]
        return statistics.median(found) if found else None

    return Sample(
        value=statistics.median(each.value for each in samples),
        cpu_us=median("cpu_us"),
        p50_ms=median("p50_ms"),
        p99_ms=median("p99_ms"),
        server_busy=median("server_busy"),
        load_busy=median("load_busy"),
    )


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the server, the rounds it is the middle of, and its baselines by name.

    A ratio of 1 is as good as the baseline and more is better, also where `less_is_better`.
    """

    name: str
    unit: str
    rounds: Sequence[Sample]
    baselines: Mapping[str, Sequence[Sample]]
    less_is_better: bool = False
    note: str = ""

    def ratio(self, baseline: str) -> float:
        ours, bare = middle(self.rounds).value, middle(self.baselines[baseline]).value
        return bare / ours if self.less_is_better else ours / bare


def show_server(measured: Sequence[Measured], *, lifted: Mapping[str, float], as_json: bool, title: str) -> None:
    """The table, and after it the same as JSON; or JSON alone."""
    found = {"machine": machine(), "lifted_limits": dict(lifted), "figures": [_as_json(each) for each in measured]}
    if as_json:
        _print_json(found)
        return
    columns = ("what", "value", "p50 ms", "p99 ms", "CPU us each", "busy: server, load", "baseline", "value", "ratio")
    table = Table(*columns, title=title)
    for each in measured:
        ours = middle(each.rounds)
        left = [f"{each.name}: {each.unit}", _number(ours.value), _ms(ours.p50_ms), _ms(ours.p99_ms)]
        left += ["" if ours.cpu_us is None else f"{ours.cpu_us:.1f}", _busy(ours)]
        for name, samples in each.baselines.items():
            table.add_row(*left, name, _number(middle(samples).value), f"{each.ratio(name):.2f}")
            left = [""] * len(left)
        if each.note:
            table.add_row(f"  {each.note}")
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print(f"limits lifted in the measured server: {', '.join(f'{k}={v:,.0f}' for k, v in lifted.items())}")
    print(json.dumps(found))


def machine() -> dict[str, object]:
    return {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}


def _as_json(each: Measured) -> dict[str, object]:
    return {
        "name": each.name,
        "unit": each.unit,
        "note": each.note,
        **_rounded(middle(each.rounds)),
        "rounds": [round(sample.value, 3) for sample in each.rounds],
        "baselines": {
            name: {
                **_rounded(middle(samples)),
                "rounds": [round(sample.value, 3) for sample in samples],
                "ratio": round(each.ratio(name), 3),
            }
            for name, samples in each.baselines.items()
        },
    }


def _rounded(sample: Sample) -> dict[str, float]:
    found = msgspec.structs.asdict(sample)
    return {name: round(value, 3) for name, value in found.items() if value is not None}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _busy(sample: Sample) -> str:
    if sample.server_busy is None or sample.load_busy is None:
        return ""
    return f"{sample.server_busy:.0%}, {sample.load_busy:.0%}"


def _print_json(found: object) -> None:
    json.dump(found, sys.stdout, indent=2)
    print()
