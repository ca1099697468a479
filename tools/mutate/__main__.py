"""`make mutate`: makes small changes to a package, and shows which of them no test notices.

Draws mutants by chance, always the same for the same seed and source. Each is tried in a copy of the tree against the
tests nearest to its module, then the stories of tests/holes and tests/scenarios, then a part of the simulation; the
first failure ends its trial. A test that hangs counts as a failure. Survivors are printed as diffs: each is a test that
is missing, or an equivalent mutant for tools/mutate/equivalent.toml.
"""

import argparse
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from types import FrameType

from tools.mutate.equivalents import entry, known, without
from tools.mutate.mutation import Mutation
from tools.mutate.operators import mutations
from tools.mutate.packages import GOLDEN, PACKAGES, modules, nearest_tests, source_of
from tools.mutate.trials import Fate, Outcome, Tree

WORKERS_MAX = 2
LIMIT_TIMES, LIMIT_MORE_S = 3, 60.0  # how much longer than the unchanged tests a trial may take

Result = tuple[Mutation, Outcome]


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT too: a shell starts background jobs with it ignored
        signal.signal(number, _interrupted)
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    drawn = draw(asked.package, asked.count, seed, asked.module)
    if asked.list:
        for mutation in drawn:
            print(f"{mutation.place}: {mutation.what}: {mutation.source}")
        return 0
    print(f"{len(drawn)} mutants of {asked.package}, seed {seed}", flush=True)
    try:
        results = _run(asked.package, drawn, asked.workers)
    except Unfit as reason:
        print(reason)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; nothing is left behind")
        return 130
    survivors = _report(results)
    return 1 if survivors > asked.allow else 0


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class Unfit(Exception):
    """The tests fail without any mutant."""


def draw(package: str, count: int, seed: int, module: str | None = None) -> list[Mutation]:
    """By chance, without those known to be equivalent."""
    offered: list[Mutation] = []
    texts: dict[str, str] = {}
    for path in modules(package):
        if module is None or path.endswith(module):
            texts[path] = source_of(path)
            offered += mutations(texts[path], path)
    chosen = without(offered, known())
    random.Random(seed).shuffle(chosen)
    return [each for each in chosen if each.is_python(texts[each.path])][:count]


def _run(package: str, drawn: Sequence[Mutation], workers: int) -> list[Result]:
    tests = nearest_tests(package)
    with ExitStack() as opened:
        trees: SimpleQueue[Tree] = SimpleQueue()
        copies = [opened.enter_context(Tree(real_engines=PACKAGES[package].real)) for _ in range(workers)]
        for tree in copies:
            trees.put(tree)
        limit_s, golden = _fit(copies[0], tests)
        reporter = _Reporter(len(drawn))
        pool = opened.enter_context(ThreadPoolExecutor(workers))
        opened.callback(pool.shutdown, wait=True, cancel_futures=True)
        for tree in copies:
            opened.callback(tree.stop)  # first: the threads wait for what runs there

        def one(mutation: Mutation) -> Result:
            tree = trees.get()
            try:
                outcome = tree.trial(mutation, tests, golden=golden, limit_s=limit_s)
            finally:
                trees.put(tree)
            reporter.tell(mutation, outcome)
            return mutation, outcome

        return list(pool.map(one, drawn))


def _fit(tree: Tree, tests: Sequence[str]) -> tuple[float, bool]:
    """How long a trial may take, and whether the golden traces are of any use. Raises `Unfit`."""
    if not tree.imports_itself():
        raise Unfit("the copy of the tree imports the installed package instead of its own")
    began = time.monotonic()
    if failures := tree.failures(tests):
        raise Unfit("these tests fail without any mutant:\n" + "\n".join(failures))
    took_s = time.monotonic() - began
    golden = not tree.failures([GOLDEN])
    print(
        f"the unchanged tests pass in {took_s:.0f} s" + ("" if golden else "; golden traces differ, and are left out")
    )
    return LIMIT_TIMES * took_s + LIMIT_MORE_S, golden


class _Reporter:
    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0
        self._lock = threading.Lock()

    def tell(self, mutation: Mutation, outcome: Outcome) -> None:
        with self._lock:
            self._done += 1
            by = f" by {outcome.test}" if outcome.test else ""
            print(
                f"[{self._done}/{self._count}] {mutation.place}: {mutation.what}: {mutation.source}\n"
                f"    {outcome.fate}{by} ({outcome.seconds:.1f} s)",
                flush=True,
            )


def _report(results: Sequence[Result]) -> int:
    """Prints the summary. Returns how many survived."""
    for fate in (Fate.GOLDEN_ONLY, Fate.SURVIVED):
        for mutation, _ in [each for each in results if each[1].fate is fate]:
            print(f"\n=== {fate}: {mutation.place}: {mutation.what}")
            print(mutation.diff(source_of(mutation.path)))
            print(f"If it is equivalent:\n{entry(mutation)}")
    fates = Counter(outcome.fate for _, outcome in results)
    print(", ".join(f"{count} {fate}" for fate, count in sorted(fates.items())) or "no mutants")
    return fates[Fate.SURVIVED]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make mutate ARGS=", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", choices=list(PACKAGES), help="which package of src/seriatim to change")
    parser.add_argument("--count", type=int, default=20, help="how many mutants to try (20)")
    parser.add_argument("--seed", type=int, help="draws the same mutants again; printed by every run")
    parser.add_argument("--module", help="only this file of the package, e.g. slots.py")
    parser.add_argument(
        "--workers", type=int, default=WORKERS_MAX, choices=range(1, WORKERS_MAX + 1), help="how many at once (2)"
    )
    parser.add_argument("--allow", type=int, default=0, help="exit with 0 although so many survive (0)")
    parser.add_argument("--list", action="store_true", help="only print what would be tried")
    return parser


if __name__ == "__main__":
    sys.exit(main())
