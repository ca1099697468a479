"""SIGHUP, as an operator sends it: the server goes on and says what it did."""

import signal
from pathlib import Path

from tests.system.server_process import serving, until
from tests.system.users import request


def test_sighup_does_not_end_the_server_and_is_logged(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        server.process.send_signal(signal.SIGHUP)
        until(lambda: server.process.poll() is not None or "settings_reread" in server.log, "the signal was handled")
        assert server.process.poll() is None
        assert request(server, "GET", "/health").status == 200
        assert server.stop() == 0
