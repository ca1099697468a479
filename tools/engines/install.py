"""Gets the engines onto this machine: Redis as a system package, Kafka and DynamoDB Local as jars through Maven.

Versions are pinned here. Maven checks every file's checksum, keeps what it has, and so takes up a download again.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from tools.engines.errors import EngineFailed, each_of, missing
from tools.engines.java import JDK_PACKAGE, require_java

FOLDER_VARIABLE = "SERIATIM_ENGINES_DIR"
DOWNLOAD_AGAIN = "Run `make engines ARGS=install` to download it."
TELL_S = 1.0
LINES_KEPT_MAX = 20

COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

Tell = Callable[[str], None]


class Package(msgspec.Struct, frozen=True):
    """An engine made of jars: what to fetch (`group:artifact:version`), and a class of ours to compile against it."""

    engine: str
    folder: str
    coordinates: tuple[str, ...]
    launcher: str | None = None

    @property
    def launcher_source(self) -> Path | None:
        return Path(__file__).with_name(self.launcher) if self.launcher else None


KAFKA = Package(
    engine="Kafka",
    folder="kafka",
    coordinates=("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36"),
)
# Not 3.3.1: it asks for files that were never published. The native library of SQLite comes along.
DYNAMODB = Package(
    engine="DynamoDB Local",
    folder="dynamodb",
    coordinates=("software.amazon.dynamodb:DynamoDBLocal:3.1.0",),
    launcher="LoopbackDynamoDB.java",
)


def engines_folder() -> Path:
    """Where the downloads are kept: `.engines` beside the Makefile, or wherever the environment says."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    return Path(chosen).resolve() if chosen else Path(__file__).parents[2] / ".engines"


def installed(package: Package) -> Path:
    """The folder with this package's `lib` and `classes`. Raises EngineMissing if it is not there in full."""
    home = engines_folder() / package.folder
    if not _is_complete(home, package):
        raise missing(package.engine, f"it is not in {home.parent}", DOWNLOAD_AGAIN)
    return home


def install(tell: Tell) -> None:
    """Fetches what is missing, and tells how it goes. What is there in full costs nothing."""
    each_of(
        [
            partial(install_redis, tell),
            partial(install_jars, KAFKA, tell),
            partial(install_jars, DYNAMODB, tell),
        ]
    )


# --- Redis -----------------------------------------------------------------------------------------------------------


def install_redis(tell: Tell) -> None:
    if shutil.which("redis-server") is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        remedy = "Install the package redis-server, for example with `sudo apt-get install redis-server`."
        raise missing("Redis", "there is no `redis-server`", remedy)
    tell("Redis: installing the package redis-server")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    update, add = ["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "redis-server"]
    subprocess.run(update, env=environment, capture_output=True, check=False)  # may fail, as long as the package comes
    done = subprocess.run(add, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EngineFailed(f"Redis could not be installed:\n{_last_lines(done.stdout + done.stderr)}")


# --- jars ------------------------------------------------------------------------------------------------------------


def install_jars(package: Package, tell: Tell) -> None:
    home = engines_folder() / package.folder
    if _is_complete(home, package):
        return
    require_java(package.engine)
    for program, debian in (("mvn", "maven"), ("javac", JDK_PACKAGE)):
        if shutil.which(program) is None:
            raise missing(package.engine, f"there is no `{program}`", f"Install the package {debian}.")
    home.mkdir(parents=True, exist_ok=True)
    with _alone(home.with_suffix(".lock")):
        if _is_complete(home, package):  # another process did it while we waited
            return
        shutil.rmtree(home)
        home.mkdir()
        _download(package, home, tell)
        _compile(package, home)
        _stamp(home).write_text(_fingerprint(package), encoding="ascii")


def _is_complete(home: Path, package: Package) -> bool:
    """The stamp is written last, and names what was asked for: half a download and an old version both miss it."""
    stamp = _stamp(home)
    return stamp.exists() and stamp.read_text(encoding="ascii") == _fingerprint(package)


def _stamp(home: Path) -> Path:
    return home / "complete"


def _fingerprint(package: Package) -> str:
    source = package.launcher_source.read_text(encoding="utf-8") if package.launcher_source else ""
    return hashlib.sha256((_project(package) + source).encode()).hexdigest()


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _download(package: Package, home: Path, tell: Tell) -> None:
    project = home / "pom.xml"
    project.write_text(_project(package), encoding="utf-8")
    tell(f"{package.engine}: downloading {package.coordinates[0]} and what it needs")
    command = [
        *("mvn", "--batch-mode", "--strict-checksums", "--update-snapshots", "-Dstyle.color=never"),
        *("--file", str(project), COPY_GOAL),
        *("-DincludeScope=runtime", f"-DoutputDirectory={home / 'lib'}"),
    ]
    progress = _Progress(package.engine, tell)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home) as maven:
        assert maven.stdout is not None
        for line in maven.stdout:
            progress.read(line)
    if maven.returncode != 0:
        raise EngineFailed(f"{package.engine} could not be downloaded; try again. Maven's last words:\n{progress.tail}")
    progress.done(home / "lib")


def _compile(package: Package, home: Path) -> None:
    if package.launcher_source is None:
        return
    command = ["javac", "-cp", str(home / "lib" / "*"), "-d", str(home / "classes"), str(package.launcher_source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EngineFailed(f"{package.launcher} did not compile:\n{_last_lines(done.stdout + done.stderr)}")


def _project(package: Package) -> str:
    """A Maven project that is nothing but its dependencies."""
    wanted = "".join(
        f"<dependency><groupId>{escape(group)}</groupId><artifactId>{escape(artifact)}</artifactId>"
        f"<version>{escape(version)}</version></dependency>"
        for group, artifact, version in (each.split(":") for each in package.coordinates)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>seriatim.engines</groupId><artifactId>{package.folder}</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{wanted}</dependencies></project>\n"
    )


_REPORT = re.compile(r"Downloaded from \S+ \S+ \(([\d.]+) ([kMG]?)B at ")
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


class _Progress:
    """Counts the files that Maven reports, and tells every second or so how far it is."""

    def __init__(self, engine: str, tell: Tell) -> None:
        self._engine, self._tell = engine, tell
        self._files, self._bytes = 0, 0.0
        self._began_s = self._reported_s = time.monotonic()
        self._lines: deque[str] = deque(maxlen=LINES_KEPT_MAX)

    @property
    def tail(self) -> str:
        return "".join(self._lines)

    def read(self, line: str) -> None:
        self._lines.append(line)
        if report := _REPORT.search(line):
            self._files += 1
            self._bytes += float(report[1]) * _BYTES[report[2]]
        if time.monotonic() - self._reported_s >= TELL_S:
            self._reported_s = time.monotonic()
            self._tell(f"{self._engine}: {self._files} files, {self._bytes / 10**6:.0f} MB")

    def done(self, libraries: Path) -> None:
        sizes = [each.stat().st_size for each in libraries.iterdir()]
        took_s = time.monotonic() - self._began_s
        self._tell(f"{self._engine}: {len(sizes)} libraries, {sum(sizes) / 10**6:.0f} MB, after {took_s:.0f} s")


def _last_lines(text: str) -> str:
    return "\n".join(text.splitlines()[-LINES_KEPT_MAX:])
