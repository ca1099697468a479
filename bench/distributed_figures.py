"""What the bench of the distributed system found, as three tables and as JSON: speed, calls, and CPU by role."""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from bench.counts import Numbers
from bench.figures import Sample, machine, middle
from seriatim.runtime.config.roles import ProcessRole

BARE_STORE = "bare DynamoDB Local: transactions"
BARE_KAFKA = "bare Kafka: appends"
ROLES = tuple(role.value for role in (ProcessRole.GATEWAY, ProcessRole.INGEST, ProcessRole.FANOUT, ProcessRole.API))
ENGINES = ("DynamoDB Local", "Kafka", "Redis")
OPERATIONS = {"BatchGetItem": "batch read", "UpdateItem": "update", "TransactWriteItems": "transaction"}
NOISE_US = 20.0  # processes are clocked in hundredths of a second, and their rest is taken off: less means nothing


class Found(msgspec.Struct, kw_only=True):
    """Of one crowd. `goal`: the most calls to DynamoDB a message may take. A round and its baselines stand side by
    side.
    """

    name: str
    goal: float
    rounds: list[Numbers] = []
    bare: list[Mapping[str, Sample]] = []

    def values(self) -> dict[str, float]:
        """The median of each number on its own. What a round did not see at all is 0 in it."""
        names = dict.fromkeys(name for each in self.rounds for name in each)
        return {name: statistics.median(each.get(name, 0) for each in self.rounds) for name in names}

    def baseline(self, name: str) -> Sample:
        return middle([each[name] for each in self.bare])

    @property
    def is_met(self) -> bool:
        """To a hundredth: people come and go, and a chat that falls silent is flushed."""
        return round(self.values()["calls"], 2) <= self.goal


def core_carries(cpu_us: float) -> float | None:
    """Messages a second with one core, None where a message costs nothing that can be measured."""
    return 1e6 / cpu_us if cpu_us >= NOISE_US else None


def show_distributed(
    found: Sequence[Found], *, sizes: Mapping[ProcessRole, int], lifted: Numbers, as_json: bool, title: str
) -> None:
    """The tables, and after them the same as JSON; or JSON alone."""
    whole = {
        "machine": machine(),
        "lifted_limits": dict(lifted),
        "processes": {role.value: count for role, count in sizes.items()},
        "figures": [_as_json(each) for each in found],
    }
    if as_json:
        json.dump(whole, sys.stdout, indent=2)
        print()
        return
    console = Console(width=None if sys.stdout.isatty() else 200)
    for table in (_speed(found, title), _calls(found), _cpu(found, sizes)):
        console.print(table)
    console.print(f"limits lifted in the measured processes: {', '.join(f'{k}={v:,g}' for k, v in lifted.items())}")
    print(json.dumps(whole))


def _speed(found: Sequence[Found], title: str) -> Table:
    table = Table("who writes", "acks/s", "p50 ms", "p99 ms", "deliveries/s", "baseline", "per s", "ratio", title=title)
    for each in found:
        ours = each.values()
        left = [each.name, *(f"{ours[name]:,.0f}" for name in ("acks_per_s", "p50_ms", "p99_ms", "deliveries_per_s"))]
        for name in (BARE_STORE, BARE_KAFKA):
            bare = each.baseline(name)
            table.add_row(*left, name, f"{bare.value:,.0f}", f"{ours['acks_per_s'] / bare.value:.2f}")
            left = [""] * len(left)
    return table


def _calls(found: Sequence[Found]) -> Table:
    table = Table(
        *("who writes", "calls", "goal", *OPERATIONS.values(), "other", "messages in one"),
        *("Kafka records", "appends", "Redis commands", "read back"),
        title="per message: calls to DynamoDB, without the look for chats left behind; what Kafka and Redis get",
    )
    for each in found:
        ours = each.values()
        operations = [ours.get(f"calls.{name}", 0) for name in OPERATIONS]
        goal = f"at most {each.goal:g}: {'met' if each.is_met else 'MISSED'}"
        others = ours["calls"] - sum(operations)
        numbers = [*operations, others, ours["batch"]]
        rest = [ours[name] for name in ("kafka_records", "kafka_appends", "redis_commands", "read_back")]
        table.add_row(each.name, f"{ours['calls']:.2f}", goal, *(f"{value:.2f}" for value in (*numbers, *rest)))
    return table


def _cpu(found: Sequence[Found], sizes: Mapping[ProcessRole, int]) -> Table:
    table = Table(
        *("who writes", *ROLES, "all roles", *ENGINES, "load"),
        title="CPU us per message above what is used at rest; the engines' own beside it",
    )
    for each in found:
        ours = each.values()
        roles = [ours[f"cpu_us.{role}"] for role in ROLES]
        beside = [ours[f"cpu_us.{name}"] for name in (*ENGINES, "load")]
        table.add_row(each.name, *(f"{value:,.0f}" for value in (*roles, sum(roles), *beside)))
        carried = [core_carries(value) for value in (*roles, sum(roles))]
        table.add_row("  messages/s that a core carries", *("" if x is None else f"{x:,.0f}" for x in carried))
    resting = [statistics.median(each.values()[f"resting_ms_per_s.{name}"] for each in found) for name in ROLES]
    each_one = [f"{ms / sizes[ProcessRole(role)]:.1f}" for ms, role in zip(resting, ROLES, strict=True)]
    table.add_row("at rest, ms each second and process", *each_one)
    return table


def _as_json(each: Found) -> dict[str, object]:
    ours = each.values()
    return {
        "name": each.name,
        "goal": {"dynamodb_calls_max": each.goal, "met": each.is_met},
        **{name: round(value, 3) for name, value in ours.items()},
        "rounds": [round(numbers["acks_per_s"], 3) for numbers in each.rounds],
        "baselines": {
            name: {
                "per_s": round(each.baseline(name).value, 3),
                "cpu_us": round(each.baseline(name).cpu_us or 0, 3),
                "ratio": round(ours["acks_per_s"] / each.baseline(name).value, 3),
            }
            for name in (BARE_STORE, BARE_KAFKA)
        },
    }
