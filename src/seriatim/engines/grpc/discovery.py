"""Where the ingest processes are: a fixed list, or every address of a DNS name."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Protocol


class AddressSource(Protocol):
    async def addresses(self) -> Sequence[str]:
        """As of now. Raises `OSError` when they cannot be resolved."""
        ...


class StaticAddresses:
    """The addresses of the setting."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(dict.fromkeys(addresses))

    async def addresses(self) -> Sequence[str]:
        return self._addresses


class DnsAddresses:
    """Every address of a name, on one port. Numeric and sorted, so that all gateways call a process the same."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def addresses(self) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        hosts = sorted({str(place[0]) for *_, place in found})
        return [f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}" for host in hosts]
