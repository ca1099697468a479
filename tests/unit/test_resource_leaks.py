"""A test that leaves something open fails itself, and not another one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = """
[pytest]
filterwarnings = error
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""
INNOCENT = "\ndef test_innocent():\n    import gc\n    gc.collect()\n"
LEFT_OPEN = {
    "a socket in a cycle": """
import socket
def test_guilty():
    cycle = [socket.socket()]
    cycle.append(cycle)
""",
    "a socket of a test that failed": """
import socket
def test_guilty():
    left = socket.socket()
    assert False, "red for another reason"
""",
    "a socket of a fixture": """
import pytest, socket
@pytest.fixture
def kept():
    cycle = [socket.socket()]
    cycle.append(cycle)
    yield cycle
def test_guilty(kept):
    pass
""",
    "a transport of a closed loop": """
import asyncio
async def test_guilty():
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    await asyncio.open_connection(*server.sockets[0].getsockname())
    server.close()
""",
    "a file": """
import os
def test_guilty():
    cycle = [open(os.devnull)]
    cycle.append(cycle)
""",
    "a process": """
import subprocess, sys
def test_guilty():
    cycle = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)]
    cycle.append(cycle)
""",
}
STARTS_A_THREAD = """
import threading
def test_guilty():
    threading.Thread(target=threading.Event().wait, name="left", daemon=True).start()
"""
ENDS_ITS_THREAD = """
import pytest, threading
@pytest.fixture(scope="module")
def served():
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()
def test_tidy(served):
    pass
"""


@pytest.mark.parametrize("left_open", LEFT_OPEN.values(), ids=list(LEFT_OPEN))
def test_a_test_that_leaves_something_open_fails_itself(tmp_path: Path, left_open: str) -> None:
    found = outcome(tmp_path, left_open + INNOCENT)
    assert "ERROR test_it.py::test_guilty" in found
    assert "something was left open" in found
    assert "test_innocent" not in found


def test_a_thread_that_outlives_its_module_is_found_and_its_test_named(tmp_path: Path) -> None:
    found = outcome(tmp_path, STARTS_A_THREAD + INNOCENT)
    assert "ERROR test_it.py::test_innocent" in found
    assert re.search(r"Thread\(left, .* since test_it.py::test_guilty", found)


def test_a_thread_of_a_fixture_that_ends_with_its_module_is_no_leftover(tmp_path: Path) -> None:
    assert "2 passed" in outcome(tmp_path, ENDS_ITS_THREAD + INNOCENT)


def test_a_test_that_closes_everything_passes(tmp_path: Path) -> None:
    found = outcome(
        tmp_path,
        """
import asyncio, socket, subprocess, sys, threading
def test_tidy():
    async def talk():
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
    asyncio.run(talk())
    subprocess.run([sys.executable, "-c", ""])
    threading.Thread(target=lambda: None).start()
"""
        + INNOCENT,
    )
    assert "2 passed" in found


def outcome(folder: Path, source: str) -> str:
    (folder / "test_it.py").write_text(source, encoding="utf-8")
    (folder / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
    plugins = ("-p", "tests.support.resource_leaks", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", "pytest", "-q", "-ra", *plugins)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, env=environment)
    return done.stdout + done.stderr
