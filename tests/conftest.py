"""The order of a run, and its last words: which engines were missing, and how many tests therefore said nothing."""

from collections.abc import Generator, Iterator

import pytest
from _pytest.terminal import TerminalReporter
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.support.real_engines import TITLE, not_run

pytest_plugins = ("tests.support.resource_leaks", "tests.support.virtual_time")

# Each folder shares one deployment on real engines, so its tests stay on one worker; they take longest and begin first.
# test_misrouted comes before test_roles: it counts all pushes, and test_roles leaves a record that cannot be read.
DEPLOYMENTS = ("tests/system/faults/", "tests/system/roles/")
FIRST = (*DEPLOYMENTS[:1], "tests/system/roles/test_misrouted.", *DEPLOYMENTS[1:])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of deployments first, each deployment's together; all else keeps its random order."""
    items.sort(key=lambda item: next((n for n, each in enumerate(FIRST) if item.nodeid.startswith(each)), len(FIRST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> "FilesAndDeployments":
    """A file stays on one worker, and so do all tests of a deployment."""
    return FilesAndDeployments(config, log)


class FilesAndDeployments(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


def _scope(nodeid: str) -> str:
    path = nodeid.split("::", 1)[0]
    return next((each for each in DEPLOYMENTS if path.startswith(each)), path)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> Generator[None, None, None]:
    """After everything else, where it is seen. With several workers, only who collects their reports gets here."""
    yield
    lines = not_run(_reasons(terminalreporter))
    if lines:
        terminalreporter.section(TITLE, red=True, bold=True)
        for line in lines:
            terminalreporter.write_line(line, red=True)
        terminalreporter.write_line("`make engines ARGS=install` gets what it can. In CI (CI=true) these tests fail.")


def _reasons(reporter: TerminalReporter) -> Iterator[str]:
    for report in reporter.stats.get("skipped", ()):
        if isinstance(report.longrepr, tuple):
            yield str(report.longrepr[-1])
