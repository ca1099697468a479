"""Redis, from the system's package. It stores nothing on disk: whatever ends it, it comes back empty."""

import shutil
import socket
from typing import ClassVar

from tools.engines.engine import Engine, require_program
from tools.engines.ports import HOST

PROBE_S_MAX = 1.0


class Redis(Engine):
    name: ClassVar[str] = "Redis"

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def wipe(self) -> None:
        """Ends it without warning and starts it empty: every key, channel and connection is gone."""
        self.kill()
        self.start()

    def require(self) -> None:
        require_program(self.name, "setpriv", "util-linux")
        require_program(self.name, "redis-server", "redis-server (as root, `make engines ARGS=install` does)")

    def prepare(self) -> None:
        """An empty folder is all it needs."""

    def command(self) -> list[str]:
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
        }
        return [_program(), *(word for name, value in settings.items() for word in (f"--{name}", value))]

    def answers(self) -> bool:
        with socket.create_connection((HOST, self.port), PROBE_S_MAX) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64) == b"+PONG\r\n"


def _program() -> str:
    return shutil.which("redis-server") or "redis-server"
