"""Runs many schedules on all cores, in seed order, until they are done, time is up, or enough seeds have violations."""

import gc
import importlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from random import Random
from typing import Protocol, cast

from seriatim.simulation.loop import SimulatedLoop, describe_error
from seriatim.simulation.mutants.mutant import Mutant
from seriatim.simulation.results import MutantResult, RunSummary, ScheduleResult, Violation
from seriatim.simulation.trace import Trace

WORLD = "seriatim.simulation.world:run_schedule"
BROKEN_SEEDS_MAX = 5  # enough to see whether one cause or several are behind them
_CHUNK_SEEDS = 16  # half a second of work: a short wait at the end, and little to pass between processes
_BASELINE_EVENTS = 50_000


class RunSchedule(Protocol):
    """The function that runs a world. A violation is a result, not an exception."""

    def __call__(self, seed: int, *, profile: str, mutant: str | None, trace: Trace | None) -> ScheduleResult: ...


Progress = Callable[[RunSummary], None]


def run_seeds(
    seeds: Iterable[int],
    *,
    profile: str,
    mutant: str | None = None,
    jobs: int = 1,
    world: str = WORLD,
    seconds: float | None = None,
    broken_seeds_max: int = BROKEN_SEEDS_MAX,
    progress: Progress | None = None,
) -> RunSummary:
    """Runs the seeds in order. After so many `seconds` no further seed begins.

    An interrupt from the keyboard ends the run early; what was done until then is in the summary.
    """
    summary = RunSummary(profile=profile, baseline_events_per_s=empty_loop_events_per_s())
    began = time.perf_counter()
    chunks = _chunks(seeds, None if seconds is None else time.monotonic() + seconds)
    try:
        for results, cpu_s in _in_order(chunks, (world, profile, mutant), jobs):
            summary.add(results, cpu_s)
            summary.wall_s = time.perf_counter() - began
            if progress is not None:
                progress(summary)
            if summary.broken_seeds >= broken_seeds_max:
                break
    except KeyboardInterrupt:
        summary.interrupted = True
    summary.wall_s = time.perf_counter() - began
    return summary


def hunt(
    mutant: Mutant,
    *,
    seeds: Iterable[int],
    profile: str | None = None,
    jobs: int = 1,
    world: str = WORLD,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> MutantResult:
    """Runs consecutive seeds against a mutant until one of them catches it."""
    chosen = profile or mutant.profile
    summary = run_seeds(
        seeds,
        profile=chosen,
        mutant=mutant.name,
        jobs=jobs,
        world=world,
        seconds=seconds,
        broken_seeds_max=1,
        progress=progress,
    )
    if summary.interrupted:
        raise KeyboardInterrupt
    first = summary.broken[0] if summary.broken else None
    tried = summary.schedules if first is None or summary.first_seed is None else first.seed - summary.first_seed + 1
    return MutantResult(name=mutant.name, removes=mutant.removes, profile=chosen, seeds_tried=tried, caught_by=first)


def run_one(
    seed: int, *, profile: str, mutant: str | None = None, trace: Trace | None = None, world: str = WORLD
) -> ScheduleResult:
    """One schedule, without garbage collection: when it runs would depend on the schedules before."""
    run_schedule = _load(world)
    collecting = gc.isenabled()
    gc.disable()
    try:
        return run_schedule(seed, profile=profile, mutant=mutant, trace=trace)
    except Exception as error:
        broken = Violation(invariant="simulator_error", explanation=describe_error(error), at=0.0)
        return ScheduleResult(
            seed=seed, virtual_seconds=0.0, sends=0, acks=0, faults={}, violations=(broken,), events_run=0
        )
    finally:
        if collecting:
            gc.enable()


def known_mutants() -> dict[str, Mutant]:
    """Every mutant by name."""
    return cast(dict[str, Mutant], importlib.import_module("seriatim.simulation.mutants.catalogue").MUTANTS)


def empty_loop_events_per_s() -> float:
    """The speed of the loop itself on this machine, at this moment: callbacks and timers that do nothing."""
    loop = SimulatedLoop(Random(1))

    def tick(left: int) -> None:
        if left:
            if left % 4:
                loop.call_soon(tick, left - 1)
            else:
                loop.call_later(0.001, tick, left - 1)

    loop.call_soon(tick, _BASELINE_EVENTS - 1)
    began = time.process_time()
    loop.run_until(float(_BASELINE_EVENTS))
    spent = time.process_time() - began
    loop.close()
    return loop.events_run / spent if spent else 0.0


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Chunk = tuple[int, ...]
Work = tuple[str, str, str | None]
Done = tuple[list[ScheduleResult], float]


def _chunks(seeds: Iterable[int], until: float | None) -> Iterator[Chunk]:
    chunk: list[int] = []
    for seed in seeds:
        if not chunk and until is not None and time.monotonic() >= until:
            return
        chunk.append(seed)
        if len(chunk) == _CHUNK_SEEDS:
            yield tuple(chunk)
            chunk = []
    if chunk:
        yield tuple(chunk)


def _in_order(chunks: Iterator[Chunk], work: Work, jobs: int) -> Iterator[Done]:
    """Results in the order of the seeds, so that a run's summary does not depend on which core was faster."""
    if jobs <= 1:
        _exempt_from_collection(work[0])
        try:
            for chunk in chunks:
                yield _run_chunk(chunk, work)
        finally:
            gc.unfreeze()
        return
    # Spawned, not forked: the parent draws a progress bar from a thread, and threads do not survive a fork.
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker, initargs=work[:1]
    )
    try:
        running: deque[Future[Done]] = deque()
        for chunk in chunks:
            running.append(pool.submit(_run_chunk, chunk, work))
            if len(running) > 2 * jobs:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker(world: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    _exempt_from_collection(world)


def _exempt_from_collection(world: str) -> None:
    """What is imported by now is never garbage: to scan it between schedules would cost as much as a schedule."""
    _load(world)
    gc.collect()
    gc.freeze()


def _run_chunk(chunk: Chunk, work: Work) -> Done:
    world, profile, mutant = work
    began = time.process_time()
    results = [run_one(seed, profile=profile, mutant=mutant, world=world) for seed in chunk]
    gc.collect()  # between chunks: a dead world is full of cycles, and collecting after each costs a tenth of the time
    return results, time.process_time() - began


def _load(world: str) -> RunSchedule:
    module, _, name = world.partition(":")
    return cast(RunSchedule, getattr(importlib.import_module(module), name))
