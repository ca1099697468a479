"""Downloads: reported as they go, never half taken for whole, and done once. Maven and Java are scripts here."""

from pathlib import Path

import pytest

from tools.engines.errors import EngineFailed, EngineMissing
from tools.engines.install import Package, install_jars, installed
from tools.engines.java import major_version

PACKAGE = Package(engine="Kafka", folder="kafka", coordinates=("group:artifact:1.0", "other:thing:2"))

GOOD_MAVEN = """\
for word in "$@"; do case $word in -DoutputDirectory=*) folder=${word#*=};; esac; done
echo "[INFO] Downloaded from central: somewhere/artifact-1.0.jar (10 MB at 5 MB/s)"
/bin/mkdir -p $folder && echo jar > $folder/artifact-1.0.jar
"""
BROKEN_MAVEN = """\
echo "[ERROR] the line was cut"; exit 1
"""


class Machine:
    """A machine with Java and a Maven that behaves as reported and counts its runs."""

    def __init__(self, root: Path) -> None:
        self._programs, self._runs = root / "bin", root / "runs"
        self._programs.mkdir()
        self.program("java", """echo 'openjdk version "17.0.15"' >&2""")
        self.program("javac", "")
        self.maven(GOOD_MAVEN)

    def program(self, name: str, script: str) -> None:
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def remove(self, name: str) -> None:
        (self._programs / name).unlink()

    def maven(self, script: str) -> None:
        self.program("mvn", f"echo run >> {self._runs}\n{script}")

    @property
    def maven_runs(self) -> int:
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("SERIATIM_ENGINES_DIR", str(tmp_path / "engines"))
    return machine


def test_a_download_is_reported_and_then_installed(machine: Machine) -> None:
    reported: list[str] = []
    install_jars(PACKAGE, reported.append)
    assert (installed(PACKAGE) / "lib" / "artifact-1.0.jar").exists()
    assert reported[0] == "Kafka: downloading group:artifact:1.0 and what it needs"
    assert reported[-1].startswith("Kafka: 1 libraries")


def test_what_is_there_is_not_downloaded_again(machine: Machine) -> None:
    install_jars(PACKAGE, _nobody)
    install_jars(PACKAGE, _nobody)
    assert machine.maven_runs == 1


def test_a_download_that_broke_off_counts_for_nothing_and_is_taken_up_again(machine: Machine) -> None:
    machine.maven(GOOD_MAVEN + BROKEN_MAVEN)
    with pytest.raises(EngineFailed, match="the line was cut"):
        install_jars(PACKAGE, _nobody)
    with pytest.raises(EngineMissing, match="make engines ARGS=install"):
        installed(PACKAGE)
    machine.maven(GOOD_MAVEN)
    install_jars(PACKAGE, _nobody)
    assert installed(PACKAGE).exists()


def test_another_version_than_the_pinned_one_is_replaced(machine: Machine) -> None:
    older = Package(engine="Kafka", folder="kafka", coordinates=("group:artifact:0.9", "other:thing:2"))
    install_jars(older, _nobody)
    leftover = installed(older) / "lib" / "artifact-0.9.jar"
    leftover.touch()
    with pytest.raises(EngineMissing):
        installed(PACKAGE)
    install_jars(PACKAGE, _nobody)
    assert not leftover.exists()


@pytest.mark.parametrize(("program", "package"), [("mvn", "maven"), ("javac", "openjdk"), ("java", "Java 17")])
def test_a_missing_program_is_named_with_what_to_install(machine: Machine, program: str, package: str) -> None:
    machine.remove(program)
    with pytest.raises(EngineMissing, match=f"Kafka was not run: .*{package}"):
        install_jars(PACKAGE, _nobody)


def test_a_java_that_is_too_old_is_refused(machine: Machine) -> None:
    machine.remove("java")
    machine.program("java", """echo 'openjdk version "11.0.2"' >&2""")
    with pytest.raises(EngineMissing, match="its Java is 11"):
        install_jars(PACKAGE, _nobody)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ("command not found", None),
    ],
)
def test_every_way_java_says_its_version_is_understood(said: str, version: int | None) -> None:
    assert major_version(said) == version


def _nobody(_line: str) -> None:
    """Does not listen."""
