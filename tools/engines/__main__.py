"""`make engines`: starts Redis, Kafka and DynamoDB Local, prints where they are, and stops them at Ctrl-C.

`install` only downloads. `--json` prints one JSON object instead of shell exports. Progress goes to standard error.
"""

import argparse
import json
import signal
import sys
import time
from types import FrameType

from tools.engines.dynamodb import KEY_ID, REGION, SECRET
from tools.engines.engines import Engines
from tools.engines.errors import EngineFailed, EngineMissing
from tools.engines.install import install


def main() -> None:
    parser = argparse.ArgumentParser(prog="make engines", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("run", "install"), default="run")
    parser.add_argument("--json", action="store_true", help="print the addresses as one JSON object")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    try:
        install(_tell)
        if asked.what == "run":
            _run(as_json=asked.json)
    except (EngineMissing, EngineFailed) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        _tell("stopped")


def _run(*, as_json: bool) -> None:
    began_s = time.monotonic()
    with Engines.started() as engines:
        _tell(f"all three answer after {time.monotonic() - began_s:.1f} s; Ctrl-C stops them and removes their data")
        addresses = {
            "redis_url": engines.redis_url,
            "kafka_bootstrap": engines.kafka_bootstrap,
            "dynamodb_url": engines.dynamodb_url,
        }
        if as_json:
            print(json.dumps(addresses), flush=True)
        else:
            print(_exports(addresses), flush=True)
        signal.pause()


def _exports(addresses: dict[str, str]) -> str:
    # DynamoDB Local takes any key, but the libraries that sign requests want one.
    keys = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
    named = {**{name.upper(): value for name, value in addresses.items()}, **keys, **_settings(addresses)}
    return "\n".join(f"export {name}={value}" for name, value in named.items())


def _settings(addresses: dict[str, str]) -> dict[str, str]:
    """The same as `seriatim` takes it."""
    return {
        "SERIATIM_STORE": f"'dynamodb://?endpoint={addresses['dynamodb_url']}&region={REGION}'",
        "SERIATIM_EVENTS": f"kafka://{addresses['kafka_bootstrap']}",
        "SERIATIM_DIRECTORY": addresses["redis_url"],
    }


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
