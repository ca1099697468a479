"""`seriatim simulate`: the real planes in simulated worlds that fail, checked against every promise."""

import itertools
import re
import sys
import time
from collections.abc import Iterable

import click
import msgspec
from rich.console import Console

from seriatim.simulation import report
from seriatim.simulation.faults.profiles import MIXED, PROFILES
from seriatim.simulation.mutants.mutant import Mutant
from seriatim.simulation.results import MutantResult, RunSummary
from seriatim.simulation.runner import WORLD, cores, empty_loop_events_per_s, hunt, known_mutants, run_one
from seriatim.simulation.runner import run_seeds as run_many
from seriatim.simulation.trace import Keep, Trace

WIDTH = 120  # of what is printed when there is no terminal to ask
SEEDS_DEFAULT = range(1, 201)
FOUND, INTERRUPTED = 1, 130  # exit codes; 0 is fine, 2 is a mistake on the command line


def _seed_range(context: click.Context, parameter: click.Parameter, value: str | None) -> range | None:
    """`A..B`, both included."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+)\.\.(\d+)", value)
    if match is None or int(match[1]) > int(match[2]):
        raise click.BadParameter(f"{value!r} is not a range of seeds like 1..1000", context, parameter)
    return range(int(match[1]), int(match[2]) + 1)


_PROFILES_HELP = "\n".join(f"  {profile.name:<9} {profile.summary}" for profile in PROFILES.values())
_EPILOG = f"""\b
Profiles:
{_PROFILES_HELP}

Exit code: 0 every promise held (with --mutant: every mutant was caught), 1 not, 2 usage.
"""


@click.command(short_help="Run the real code with simulated faults.", epilog=_EPILOG)
@click.option(
    "--seeds", metavar="A..B", callback=_seed_range, help="Run these seeds, both ends included.  [default: 1..200]"
)
@click.option(
    "--minutes", metavar="M", type=click.FloatRange(min=0, min_open=True), help="Run new seeds for this many minutes."
)
@click.option("--seed", metavar="N", type=click.IntRange(min=0), help="Run this one seed.")
@click.option("--trace", is_flag=True, help="With --seed: print every event, a lane per process.")
@click.option("--mutant", metavar="NAME|all", help="Remove a rule from the system and see whether the checks notice.")
@click.option(
    "--profile", metavar="NAME", type=click.Choice(list(PROFILES)), help="What goes wrong, see below.  [default: mixed]"
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    default=cores,
    show_default="one per core",
    help="Processes to use.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("--world", default=WORLD, hidden=True)
def simulate(
    seeds: range | None,
    minutes: float | None,
    seed: int | None,
    trace: bool,
    mutant: str | None,
    profile: str | None,
    jobs: int,
    as_json: bool,
    world: str,
) -> None:
    """Run the real code in simulated worlds with faults, and check every promise.

    A seed is a world: its users, its faults, the order in which everything happens. The same seed always gives the
    same world, so every failure can be replayed, event by event.
    """
    if sum(given is not None for given in (seeds, minutes, seed)) > 1:
        raise click.UsageError("choose one of --seeds, --minutes and --seed")
    if trace and seed is None:
        raise click.UsageError("--trace needs --seed: the trace of one world is long enough")
    mutants = _chosen_mutants(mutant)
    if trace and len(mutants) > 1:
        raise click.UsageError("--trace shows one world: name one mutant")

    screen = _Screen(as_json)
    if seed is not None and len(mutants) <= 1:
        sys.exit(_one(screen, seed, profile, mutants[0] if mutants else None, trace, world))
    chosen: Iterable[int] | None = seeds if seed is None else range(seed, seed + 1)
    if minutes is not None:
        # Another start for each run, so that every minute runs seeds that were never run before.
        chosen = itertools.count(int(time.time()) * 1000)
    seconds = None if minutes is None else minutes * 60
    if mutants:
        sys.exit(_hunt(screen, mutants, chosen, profile, jobs, seconds, world))
    sys.exit(_many(screen, SEEDS_DEFAULT if chosen is None else chosen, profile or MIXED, jobs, seconds, world))


class _Screen:
    """Results go to stdout, progress to stderr, and neither breaks lines for a terminal that is not there."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.out = Console(width=None if sys.stdout.isatty() else WIDTH)
        self.progress = Console(stderr=True, width=None if sys.stderr.isatty() else WIDTH)

    def json(self, answer: dict[str, object]) -> None:
        click.echo(msgspec.json.encode(answer).decode())


def _one(screen: _Screen, seed: int, profile: str | None, mutant: Mutant | None, traced: bool, world: str) -> int:
    """Runs here, in this process, so that a debugger can follow."""
    chosen = profile or (mutant.profile if mutant else MIXED)
    name = mutant.name if mutant else None
    trace = Trace(Keep.LINES if traced else Keep.DIGEST)
    summary = RunSummary(profile=chosen, baseline_events_per_s=empty_loop_events_per_s())
    began, began_cpu = time.perf_counter(), time.process_time()
    result = run_one(seed, profile=chosen, mutant=name, trace=trace, world=world)
    summary.add([result], time.process_time() - began_cpu)
    summary.wall_s = time.perf_counter() - began
    broken = bool(summary.broken)
    if screen.as_json:
        lines: dict[str, object] = {"trace": list(trace.plain())} if traced else {}
        screen.json(_summary_json(summary, name) | {"digest": trace.digest()} | lines)
    else:
        if traced:
            _print_trace(screen.out, trace)
        report.print_summary(screen.out, summary)
        report.print_violations(screen.out, summary, name)
        screen.out.print(f"trace digest {trace.digest()}", highlight=False)
    return FOUND if broken != (mutant is not None) else 0


def _many(screen: _Screen, seeds: Iterable[int], profile: str, jobs: int, seconds: float | None, world: str) -> int:
    with _progress(screen, f"profile {profile}", seeds, seconds) as progress:
        summary = run_many(seeds, profile=profile, jobs=jobs, seconds=seconds, world=world, progress=progress.update)
    if screen.as_json:
        screen.json(_summary_json(summary, None))
    else:
        report.print_summary(screen.out, summary)
        report.print_violations(screen.out, summary)
    if summary.broken:
        return FOUND
    return INTERRUPTED if summary.interrupted else 0


def _hunt(
    screen: _Screen,
    mutants: list[Mutant],
    seeds: Iterable[int] | None,
    profile: str | None,
    jobs: int,
    seconds: float | None,
    world: str,
) -> int:
    each_s = None if seconds is None else seconds / len(mutants)
    results: list[MutantResult] = []
    for mutant in mutants:
        given = range(1, mutant.seeds + 1) if seeds is None else seeds
        with _progress(screen, f"mutant {mutant.name}", given, each_s) as progress:
            results.append(
                hunt(
                    mutant,
                    seeds=given,
                    profile=profile,
                    jobs=jobs,
                    seconds=each_s,
                    world=world,
                    progress=progress.update,
                )
            )
    caught = all(result.caught for result in results)
    if screen.as_json:
        screen.json({"mutants": [_mutant_json(result) for result in results], "caught_all": caught})
    else:
        report.print_mutants(screen.out, results)
    return 0 if caught else FOUND


def _chosen_mutants(name: str | None) -> list[Mutant]:
    if name is None:
        return []
    known = known_mutants()
    if name == "all":
        return list(known.values())
    if name not in known:
        raise click.UsageError(f"there is no mutant {name!r}; there are: all, {', '.join(known)}")
    return [known[name]]


def _progress(screen: _Screen, title: str, seeds: Iterable[int], seconds: float | None) -> report.ProgressDisplay:
    total = len(seeds) if isinstance(seeds, range) else None
    return report.ProgressDisplay(screen.progress, title, schedules=total, seconds=seconds)


def _print_trace(console: Console, trace: Trace) -> None:
    if console.is_terminal:
        for line in report.trace_lines(trace, console.width):
            console.print(line, no_wrap=True, highlight=False)
    else:
        for plain in trace.plain():
            click.echo(plain)


def _summary_json(summary: RunSummary, mutant: str | None) -> dict[str, object]:
    violations = [
        {
            "seed": broken.seed,
            "invariant": broken.violation.invariant,
            "explanation": broken.violation.explanation,
            "at": broken.violation.at,
            "replay": report.replay_command(broken.seed, summary.profile, mutant),
        }
        for broken in summary.broken
    ]
    return {
        "profile": summary.profile,
        "schedules": summary.schedules,
        "first_seed": summary.first_seed,
        "last_seed": summary.last_seed,
        "virtual_hours": summary.virtual_seconds / 3600,
        "sends": summary.sends,
        "acks": summary.acks,
        "faults": summary.faults,
        "violations": violations,
        "schedules_per_core_second": summary.schedules_per_core_s,
        "empty_loop_schedules_per_core_second": summary.baseline_schedules_per_core_s,
        "empty_loop_events_per_second": summary.baseline_events_per_s,
        "seconds": summary.wall_s,
        "interrupted": summary.interrupted,
    }


def _mutant_json(result: MutantResult) -> dict[str, object]:
    caught = result.caught_by
    return {
        "name": result.name,
        "removes": result.removes,
        "profile": result.profile,
        "seeds_tried": result.seeds_tried,
        "caught": result.caught,
        "invariant": caught.violation.invariant if caught else None,
        "seed": caught.seed if caught else None,
        "replay": report.replay_command(caught.seed, result.profile, result.name) if caught else None,
    }
