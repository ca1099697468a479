"""A pytest plugin: a test that leaves something open fails itself, and not the test during which it is collected.

After each test the garbage is collected: what nobody closed warns then, as ever (`ResourceWarning`, an error here), in
the teardown of the test that made it. A thread that the test started and did not end is found as well.

What was imported by the end of the collection is frozen: it is never garbage, and looking at it again after each test
would cost some 50 ms. Without it a collection takes about 1 ms.
"""

import gc
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

THREAD_ENDS_S = 5.0  # a thread that was told to end may need a moment on a busy machine
LASTING_THREADS = ("engines",)  # starts real engines, for all tests of a process


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    _threads.clear()
    _threads.update(threading.enumerate())
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Outermost: all fixtures that end with this test have ended."""
    result = yield
    if isinstance(item, pytest.Function):
        item.funcargs.clear()  # what fixtures yielded
    if left := [*_unclosed(), *_running()]:
        pytest.fail("this test left something open:\n" + "\n".join(left), pytrace=False)
    return result


_threads: set[threading.Thread] = set()  # those that lived before the test


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


def _running() -> list[str]:
    started = [each for each in threading.enumerate() if each not in _threads]
    for thread in started:
        if not thread.name.startswith(LASTING_THREADS):
            thread.join(THREAD_ENDS_S)
    return [repr(each) for each in started if each.is_alive() and not each.name.startswith(LASTING_THREADS)]
