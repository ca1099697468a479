"""A pytest plugin: a test that leaves something open fails itself, and not the test during which it is collected.

After each test the garbage is collected: what was not closed warns then, as ever (`ResourceWarning`, an error here), in
the teardown of the test that made it. Threads that outlive their module are found as well: a fixture may have started
them for all tests of it.

What was imported by the end of the collection is frozen: it is never garbage, and reading it again after each test
would cost some 50 ms. Without it a collection takes about 1 ms. What a module of tests leaves behind (imports, caches)
is frozen when the module ends: otherwise it is read again after every later test, for a third of the time of a long
run.
"""

import gc
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

THREAD_ENDS_S = 5.0  # a thread that was asked to end may need a moment on a busy machine
# One starts real engines, for all tests of a process; one runs the proxies of the fault tests, for all their modules.
LASTING_THREADS = ("engines", "proxies")


def pytest_collection_finish() -> None:
    _started.update(dict.fromkeys(threading.enumerate(), ""))  # those of pytest's plugins
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Outermost: all fixtures that end with this test have ended."""
    result = yield
    if isinstance(item, pytest.Function):
        item.funcargs.clear()  # what fixtures yielded
    left = _unclosed()
    _note_threads(item)
    if nextitem is None or nextitem.path != item.path:
        left += _running()
        gc.freeze()
    if left:
        pytest.fail("something was left open:\n" + "\n".join(left), pytrace=False)
    return result


def _unclosed() -> list[str]:
    # pytest keeps the last failure for debuggers, and with it all that the failed test had in hand.
    sys.last_type = sys.last_value = sys.last_traceback = None
    with _collected() as warned:
        gc.collect()
    return warned


@contextmanager
def _collected() -> Generator[list[str], None, None]:
    """What could not be raised, because it happened in a destructor."""
    warned: list[str] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda what: warned.append(repr(what.exc_value))
    try:
        yield warned
    finally:
        sys.unraisablehook = before


_started: dict[threading.Thread, str] = {threading.main_thread(): ""}  # threads, by the test that started them


def _note_threads(item: pytest.Item) -> None:
    for thread in threading.enumerate():
        _started.setdefault(thread, item.nodeid)


def _running() -> list[str]:
    left: list[str] = []
    for thread, test in list(_started.items()):
        if not test or thread.name.startswith(LASTING_THREADS):
            continue
        thread.join(THREAD_ENDS_S)
        if thread.is_alive():
            left.append(f"{thread!r} since {test}")
            _started[thread] = ""  # said once
        else:
            del _started[thread]
    return left
