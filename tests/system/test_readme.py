"""What the README and the quickstart ask a new user to type is typed here, word for word, against a real server."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.server_process import ServerProcess, clean_environment, serving
from tests.system.users import Json

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
HELLO = (ROOT / "examples" / "hello.py").read_text(encoding="utf-8")


def test_the_quickstart_shows_the_example_as_it_is() -> None:
    assert HELLO in _blocks(QUICKSTART, "python")


def test_the_example_has_15_lines_as_the_pages_say() -> None:
    docstring, *lines = [line for line in HELLO.splitlines() if line]
    assert docstring.startswith('"""')
    assert len(lines) == 15
    assert ("client of 15 lines" in README, "client in 15 lines" in QUICKSTART) == (True, True)


@pytest.mark.parametrize("page", [README, QUICKSTART], ids=["README.md", "quickstart.md"])
def test_a_user_who_types_what_the_page_says_sees_both_messages_under_the_same_numbers(
    page: str, tmp_path: Path
) -> None:
    _need_curl()
    with serving(tmp_path / "seriatim-data", env="dev") as server:
        frames = _typed(page, server, tmp_path)
    acked = {frame["client_message_id"]: frame["sequence"] for frame in frames if frame.get("type") == "message_ack"}
    received = {frame["content"]: frame for frame in frames if "content" in frame}
    assert sorted(acked.values()) == [1, 2]
    assert sorted(received) == ["Good evening", "Good morning"]
    assert all(frame["sequence"] == acked[frame["client_message_id"]] for frame in received.values())


def _need_curl() -> None:
    if shutil.which("curl") is None:
        assert "CI" not in os.environ, "install curl: without it what the README says is not tested"
        pytest.skip("there is no curl here")


def _typed(page: str, server: ServerProcess, folder: Path) -> list[Json]:
    """The frames that both clients print, until each has received what the other sent."""
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "examples").mkdir()
    (folder / "examples" / "hello.py").write_text(_here(HELLO, server), encoding="utf-8")
    script = folder / "typed.sh"
    script.write_text("set -eu\n" + _here("".join(_blocks(page, "bash")), server), encoding="utf-8")
    shell = subprocess.Popen(
        ("bash", script),
        cwd=folder,
        env={**clean_environment(), "CONSOLE": str(server.data.with_name(f"{server.data.name}.out"))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return list(_until_both_heard(shell))
    finally:
        os.killpg(shell.pid, signal.SIGKILL)  # Ada's client runs in the background
        shell.communicate()


def _until_both_heard(shell: "subprocess.Popen[str]") -> Iterator[Json]:
    assert shell.stdout is not None
    missing = ["Good evening", "Good morning", "message_ack", "message_ack"]
    printed = []
    for line in shell.stdout:
        printed.append(line)
        # Two programs write to one place: the line of one may begin before that of the other has ended.
        for text in re.findall(r"\{'[^{}]*\}", line):
            frame = ast.literal_eval(text)
            yield frame
            for said in (frame.get("content"), frame.get("type")):
                if said in missing:
                    missing.remove(said)
        if not missing:
            return
    raise AssertionError(f"the clients ended; never printed: {missing}\n{''.join(printed)}")


def _here(text: str, server: ServerProcess) -> str:
    """The port is another one, and the code is read from the console as a user would read it."""
    waiting = 'until grep -q one-time "$CONSOLE"; do sleep 0.05; done\nCODE=$(sed -n "s/^one-time.*: //p" "$CONSOLE")'
    return re.sub(r"^CODE=\d{6}$", waiting, text.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}"), flags=re.M)


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
