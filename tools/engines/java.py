"""The Java that Kafka and DynamoDB Local run on: whether it is new enough, and how we call it."""

import functools
import re
import shutil
import subprocess
from pathlib import Path

from tools.engines.errors import missing

JAVA_MIN = 17
JDK_PACKAGE = "openjdk-17-jdk-headless"
HEAP_MIB_MAX = 512


def java(*classpath: Path, properties: dict[str, str]) -> list[str]:
    """The command up to the main class. These are servers of a minute or an hour, so a quick start counts most."""
    return [
        "java",
        f"-Xmx{HEAP_MIB_MAX}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.net.preferIPv4Stack=true",
        *(f"-D{name}={value}" for name, value in properties.items()),
        "-cp",
        ":".join(str(each) for each in classpath),
    ]


def require_java(engine: str) -> None:
    """Raises EngineMissing unless Java is here and new enough."""
    found = shutil.which("java")
    version = _version(found) if found else None
    remedy = f"Install Java {JAVA_MIN} or newer, for example the package {JDK_PACKAGE}."
    if version is None:
        raise missing(engine, "there is no Java", remedy)
    if version < JAVA_MIN:
        raise missing(engine, f"its Java is {version}", remedy)


@functools.cache
def _version(program: str) -> int | None:
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    return major_version(said)


def major_version(said: str) -> int | None:
    """The version in what `java -version` says: 17 for "17.0.15", and 8 for "1.8.0_402"."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None
