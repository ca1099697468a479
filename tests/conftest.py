"""The order of a run, and its last words: which engines were missing, and how many tests therefore said nothing."""

from collections.abc import Generator, Iterator

import pytest
from _pytest.terminal import TerminalReporter

from tests.support.real_engines import TITLE, not_run


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What must stay on one worker takes longest, so it begins first; all else keeps its random order."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


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
