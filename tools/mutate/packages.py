"""Which tests are nearest to a package, and in which order they meet a mutant of one of its modules."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
SOURCE = Path("src/seriatim")
LEFT_OUT = ("domain/limits.py",)  # the value of a limit is a decision, which no test can confirm

# What comes after the tests of the package itself: whole stories, then a part of the simulation.
STORIES = ("tests/holes", "tests/scenarios")
SCHEDULES = "tests/simulation/test_schedules.py::test_no_promise_is_broken_in_any_mixture_of_faults[0]"
GOLDEN = "tests/simulation/test_replay.py::test_a_named_seed_replays_to_the_same_trace_everywhere[0]"


class Package(msgspec.Struct, frozen=True):
    """`near`: files and folders of tests, as globs. `real`: these need real engines, which are started for each run."""

    near: tuple[str, ...]
    real: bool = False


PACKAGES: Mapping[str, Package] = {
    "domain": Package(
        ("tests/unit/domain", "tests/unit/protocol", "tests/unit/client", "tests/unit/durability", "tests/unit/api")
    ),
    "protocol": Package(("tests/unit/protocol", "tests/unit/connection")),
    "client": Package(("tests/unit/client",)),
    "durability": Package(
        ("tests/unit/durability", "tests/contract/test_durability.py", "tests/unit/operations/test_counter_repair.py")
    ),
    "connection": Package(("tests/unit/connection",)),
    "fanout": Package(("tests/unit/fanout",)),
    "services": Package(("tests/unit/api",)),
    "api": Package(("tests/unit/api",)),
    "operations": Package(("tests/unit/operations", "tests/unit/cli")),
    "engines/embedded": Package(
        (
            "tests/unit/engines/test_embedded_*.py",
            "tests/contract",
            "tests/unit/operations/test_c*.py",
            "tests/unit/cli/test_[cdt]*.py",
        )
    ),
    "engines/grpc": Package(("tests/unit/engines/test_grpc_*.py", "tests/contract/test_durability.py")),
    "engines/inprocess": Package(("tests/unit/engines", "tests/contract")),
    "engines/redis": Package(("tests/unit/engines/test_redis_*.py", "tests/contract"), real=True),
    "engines/kafka": Package(("tests/unit/engines/test_kafka_*.py", "tests/contract"), real=True),
    "engines/dynamodb": Package(("tests/unit/engines/test_dynamodb_*.py", "tests/contract"), real=True),
    "runtime": Package(("tests/unit/runtime", "tests/unit/cli")),
    "simulation/stores": Package(("tests/unit/engines/test_memory_*.py", "tests/contract", "tests/unit/durability")),
}


def modules(package: str) -> list[str]:
    """Its source files, below src/seriatim."""
    found = sorted((ROOT / SOURCE / package).rglob("*.py"))
    paths = [file.relative_to(ROOT / SOURCE).as_posix() for file in found]
    return [path for path in paths if path not in LEFT_OUT]


def source_of(module: str) -> str:
    return (ROOT / SOURCE / module).read_text(encoding="utf-8")


def nearest_tests(package: str) -> list[str]:
    """All that a mutant of this package meets before the golden traces, as files, nearest first."""
    found: dict[str, None] = {}
    for pattern in (*PACKAGES[package].near, *STORIES):
        for path in sorted(ROOT.glob(pattern)):
            files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
            found.update(dict.fromkeys(file.relative_to(ROOT).as_posix() for file in files))
    return [*found, SCHEDULES] if (ROOT / SCHEDULES.partition("::")[0]).exists() else [*found]


def nearest_first(tests: Sequence[str], module: str) -> list[str]:
    """First the test files named after the module, then those that import it, then the others, each in their order."""
    stem = Path(module).stem
    imported = f"seriatim.{module.removesuffix('.py').replace('/', '.')}"

    def distance(test: str) -> int:
        file = ROOT / test.partition("::")[0]
        if stem in file.stem:
            return 0
        return 1 if imported in file.read_text(encoding="utf-8") else 2

    return sorted(tests, key=distance)
