"""Where the ingest processes are: a list, or a name that stands for all of them."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Protocol


class Finder(Protocol):
    async def look(self) -> Sequence[str]:
        """Their addresses as of now. Raises `OSError` when nobody can tell."""
        ...


class Listed:
    """They are where somebody wrote that they are."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(dict.fromkeys(addresses))

    async def look(self) -> Sequence[str]:
        return self._addresses


class Named:
    """Every address of a name, on one port. Sorted and written out, so that all gateways call a process the same."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def look(self) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        hosts = sorted({str(place[0]) for *_, place in found})
        return [f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}" for host in hosts]
