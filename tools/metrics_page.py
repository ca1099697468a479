"""`make spec`: writes docs/metrics.md from the table of metrics in the code. A test compares the two."""

import sys
from pathlib import Path

from seriatim.runtime.telemetry.metric_table import documentation

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "metrics.md"


def main() -> None:
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != documentation():
        PAGE.write_text(documentation(), encoding="utf-8")
        print(f"{PAGE.relative_to(ROOT)}: written", file=sys.stderr)


if __name__ == "__main__":
    main()
