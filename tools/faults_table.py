"""`make faults`: breaks everything once under load, and writes what was measured into docs/faults.md.

With `--from FILE` the rows of an earlier run are taken, and nothing is run.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from tests.system.faults.fault_list import Fault, all_faults
from tests.system.scenario_list import SCENARIOS, Scenario

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
REPORT = "SERIATIM_FAULTS_REPORT"
TESTS = "tests/system/faults"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of one test has measured, in seconds from the end of the fault."""

    fault: str
    lasted_s: float
    first_ack_s: float
    all_acks_s: float
    first_delivery_s: float
    all_deliveries_s: float
    ready_s: float
    longest_wait_s: float
    errors: Mapping[str, int]
    rest_errors: Mapping[str, int]
    messages: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--from", dest="report", type=Path, help="rows of an earlier run, one JSON object a line")
    asked = parser.parse_args()
    report = _run() if asked.report is None else asked.report.read_text(encoding="utf-8")
    rows = [msgspec.json.decode(line, type=Row) for line in report.splitlines()]
    page = written(PAGE.read_text(encoding="utf-8"), list(all_faults()), rows)
    PAGE.write_text(page, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(rows)} runs of {len(list(all_faults()))} faults")


def _run() -> str:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "rows.jsonl"
        ended = subprocess.run(
            # One after the other: a second deployment on the same cores would be measured, too.
            (sys.executable, "-m", "pytest", "-n", "0", "-p", "no:randomly", TESTS),
            env={**os.environ, REPORT: str(report), "TEST_SOAK": "on"},
            cwd=ROOT,
            check=False,
        )
        if ended.returncode != 0:
            sys.exit("the page is as it was, because a test failed")
        if not report.exists():
            sys.exit("the page is as it was, because no test ran: an engine is missing, see above")
        return report.read_text(encoding="utf-8")


def written(page: str, faults: Sequence[Fault], rows: Sequence[Row]) -> str:
    """The page with both tables anew. Raises `ValueError` when a fault was not measured."""
    unmeasured = [each.name for each in faults if each.name not in [row.fault for row in rows]]
    if unmeasured:
        raise ValueError(f"not measured: {'; '.join(unmeasured)}")
    head = "| fault | what users see | what is kept | time to recover (measured) |\n|---|---|---|---|\n"
    table = head + "".join(_line(each, [row for row in rows if row.fault == each.name]) for each in faults)
    return _between(_between(page, "faults", table), "scenarios", scenario_table())


def scenario_table() -> str:
    lines = ["| | scenario | simulated | real engines | note |", "|---|---|---|---|---|"]
    lines += [_scenario(number, each) for number, each in SCENARIOS.items()]
    return "\n".join(lines) + "\n"


def _line(fault: Fault, rows: Sequence[Row]) -> str:
    """The median of each time, when there were several runs."""
    errors = _most(row.errors for row in rows)
    rest = _most(row.rest_errors for row in rows)
    seen = [f"errors: {', '.join(errors)}" if errors else "no error"]
    seen += [f"REST: {', '.join(rest)}"] if rest else []
    seen.append(f"longest wait for an ack {_median(row.longest_wait_s for row in rows)}")
    times = {
        "first ack": _median(row.first_ack_s for row in rows),
        "everyone writes": _median(row.all_acks_s for row in rows),
        "first delivery": _median(row.first_delivery_s for row in rows),
        "everyone reads": _median(row.all_deliveries_s for row in rows),
        "all ready": _median(row.ready_s for row in rows),
    }
    recovery = "<br>".join(f"{name} {value}" for name, value in times.items())
    return f"| {fault.name} | {fault.users}<br>*{'; '.join(seen)}* | {fault.kept} | {recovery} |\n"


def _most(counts: Iterable[Mapping[str, int]]) -> Sequence[str]:
    """Codes are printed as such, plain words as they are."""
    words = sorted({word for each in counts for word in each})
    return [f"`{word}`" if word.isupper() or word.isdigit() else word for word in words]


def _median(values: Iterable[float]) -> str:
    seconds = statistics.median(values)
    return f"{seconds:.1f} s" if seconds >= 0.05 else "at once"


def _scenario(number: int, scenario: Scenario) -> str:
    columns = [_tests(scenario.simulated), _tests(scenario.real)]
    return f"| S{number} | {scenario.what} | {' | '.join(columns)} | {scenario.note} |"


def _tests(names: Sequence[str]) -> str:
    return "<br>".join(_linked(*name.partition("::")) for name in names)


def _linked(path: str, _: str, name: str) -> str:
    words = (name or Path(path).stem).removeprefix("test_").replace("_", " ")
    return f"[{words}](../tests/{path})"


def _between(page: str, mark: str, text: str) -> str:
    begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"the page has no place for {mark}")
    return before + begin + text + end + after


if __name__ == "__main__":
    main()
