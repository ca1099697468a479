"""`make deploy-files`: writes what follows from the code, so that nobody has to keep it up by hand.

Tables, topics and policies for Terraform, the policies for those who use something else, and the figures of the page
about sizing. A test compares the files that are committed with what this would write.
"""

import sys
from pathlib import Path

from tools.deploy import files

ROOT = Path(__file__).parents[2]


def main() -> None:
    for path, text in files.generated(ROOT).items():
        place = ROOT / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists() or place.read_text(encoding="utf-8") != text:
            place.write_text(text, encoding="utf-8")
            print(f"{path}: written", file=sys.stderr)


if __name__ == "__main__":
    main()
