"""Spare ports of 127.0.0.1, and which process listens on one.

Linux only: the range of ephemeral ports and the owners of sockets are read from /proc.
"""

import atexit
import os
import socket
from pathlib import Path
from random import SystemRandom

HOST = "127.0.0.1"
PORT_MIN = 20_000
"""Below live the well-known ports that people run things on."""
RANGE_PORTS_MIN = 1_000
PICKS_MAX = 100

_chance = SystemRandom()
_reserved: list[socket.socket] = []  # open for as long as this process lives


@atexit.register
def _release() -> None:
    for name in _reserved:
        name.close()


def spare_port() -> int:
    """A port without a listener, reserved for this process until it ends: no other process gets it from here.

    So an engine finds its port free when it is started again. A program that does not ask here may still take the port
    before the engine does: `Engine.start` then tries another.

    It lies below the range that outgoing connections use. Inside that range, a client that tries to reach a stopped
    engine can be given the engine's own port, be connected to itself, and keep the engine from coming back.
    """
    ephemeral_min = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    ports = range(PORT_MIN, ephemeral_min)
    if len(ports) < RANGE_PORTS_MIN:
        ports = range(PORT_MIN, 65_536)
    for _ in range(PICKS_MAX):
        port = _chance.choice(ports)
        if not is_taken(port) and _reserve(port):
            return port
    raise OSError(f"no spare port was found among {PICKS_MAX} between {ports[0]} and {ports[-1]}")


def _reserve(port: int) -> bool:
    """By a name that the kernel gives to one socket at a time (an abstract Unix address) until its process ends."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0seriatim-engines-port-{port}")
    except OSError:
        name.close()
        return False
    _reserved.append(name)
    return True


def is_taken(port: int) -> bool:
    """Whether a process listens there. Connections that are only fading away do not count."""
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((HOST, port))
        except OSError:
            return True
        return False


def listens(pid: int, port: int) -> bool:
    """Whether it is this process that listens there, and not a stranger who answers in its place."""
    listening = _listening_sockets(port)
    descriptors = Path(f"/proc/{pid}/fd")
    try:
        return any(_target(each) in listening for each in descriptors.iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return False


def _listening_sockets(port: int) -> frozenset[str]:
    suffix, listen_state = f":{port:04X}", "0A"
    rows = [
        line.split()
        for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        if table.exists()
        for line in table.read_text(encoding="ascii").splitlines()[1:]
    ]
    return frozenset(f"socket:[{row[9]}]" for row in rows if row[1].endswith(suffix) and row[3] == listen_state)


def _target(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:  # closed while we looked
        return ""
