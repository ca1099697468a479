"""Speed, as ratios within one run: each figure stands beside a bare baseline measured a moment before.

`make bench` measures the whole server; `make bench ARGS="planes"` its planes one by one and `ARGS="store"` sends
through the durability plane on the embedded engine, both without a network; `ARGS="distributed"` all roles as
processes on real DynamoDB Local, Kafka and Redis; `ARGS="instructions"` counts what a message costs. Machines are
noisy: read the ratios.
"""

import argparse
import json
import sys
from pathlib import Path

from bench import embedded, instructions, planes, server
from bench.child import LIFTED, PATIENT
from bench.figures import show, show_server
from bench.processes import MEASURED_CORE, take_the_other_cores


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("server", "planes", "store", "distributed", "instructions"), default="server"
    )
    parser.add_argument("--json", action="store_true", help="print JSON alone, without the table")
    parser.add_argument("--quick", action="store_true", help="one short round instead of the median of three")
    parser.add_argument("--only", choices=server.PARTS, action="append", help="one part of the server's figures")
    parser.add_argument("--profiles", type=Path, metavar="FOLDER", help="write what cProfile sees in each server")
    asked = parser.parse_args()
    match asked.what:
        case "planes":
            show(planes.figures(), as_json=asked.json, title="one core, this machine, this moment")
        case "store":
            rounds = 1 if asked.quick else embedded.ROUNDS
            show(embedded.figures(rounds=rounds), as_json=asked.json, title="one core, this disk, this moment")
        case "distributed":
            distributed_system(asked)
        case "instructions":
            counted_instructions(asked)
        case _:
            whole_server(asked)


def whole_server(asked: argparse.Namespace) -> None:
    take_the_other_cores()
    if asked.profiles is not None:
        asked.profiles.mkdir(parents=True, exist_ok=True)
    plan = server.QUICK if asked.quick else server.WHOLE
    found = server.measure(plan, asked.only or server.PARTS, profiles=asked.profiles)
    pinned = "no core of its own" if MEASURED_CORE is None else "one core, the load generator on another"
    title = f"the measured on {pinned}; median of {plan.rounds}; ratio 1 is as good as the bare baseline"
    show_server(found, lifted=LIFTED, as_json=asked.json, title=title)


def counted_instructions(asked: argparse.Namespace) -> None:
    try:
        found = instructions.figures(messages=2000 if asked.quick else instructions.MESSAGES)
    except instructions.ValgrindMissing as error:
        sys.exit(str(error))
    if not asked.json:
        for crowd, count in found.items():
            print(f"{count:>9,} instructions for a message: {crowd}")
    print(json.dumps({"instructions_per_message": found}))


def distributed_system(asked: argparse.Namespace) -> None:
    # Here, since the others need neither these engines nor the packages that speak to them.
    from bench import deployment, distributed
    from bench.distributed_figures import show_distributed
    from tools.engines.errors import EngineMissing

    plan = distributed.QUICK if asked.quick else distributed.WHOLE
    try:
        found = distributed.measure(plan)
    except EngineMissing as error:
        sys.exit(str(error))
    title = f"all processes, the engines and the load on this machine; median of {plan.rounds}"
    show_distributed(found, sizes=deployment.SIZES, lifted={**LIFTED, **PATIENT}, as_json=asked.json, title=title)


if __name__ == "__main__":
    main()
