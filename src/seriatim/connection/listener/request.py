"""The head of one HTTP request. Its repr shows neither headers nor query: they hold tokens."""

from collections.abc import Sequence
from urllib.parse import unquote

import msgspec

Headers = Sequence[tuple[bytes, bytes]]
SocketAddress = tuple[str, int]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Header names are lower case. `upgrade`: the client asks for another protocol on this socket."""

    method: str
    raw_path: bytes
    path: str
    query: bytes
    headers: Headers
    http_version: str
    keep_alive: bool
    upgrade: bool
    has_body: bool
    scheme: str
    client: SocketAddress | None
    server: SocketAddress | None

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path!r}>"

    def values(self, name: bytes) -> list[str]:
        """Every header of this name, in order."""
        return [value.decode("latin-1").strip() for key, value in self.headers if key == name]

    def value(self, name: bytes) -> str | None:
        """The only header of this name; None when there is none, or more than one."""
        found = self.values(name)
        return found[0] if len(found) == 1 else None

    def tokens(self, name: bytes) -> list[str]:
        """The comma-separated parts of all headers of this name."""
        parts = [part.strip() for value in self.values(name) for part in value.split(",")]
        return [part for part in parts if part]


def split_target(target: bytes) -> tuple[bytes, str, bytes] | None:
    """Raw path, decoded path and query of a request target; None when it names no path."""
    for scheme in (b"http://", b"https://"):
        if target[: len(scheme)].lower() == scheme:  # absolute form, as sent to a proxy (RFC 9112 section 3.2.2)
            target = b"/" + target[len(scheme) :].partition(b"/")[2]
    if not target.startswith(b"/") and target != b"*":
        return None
    raw_path, _, query = target.partition(b"#")[0].partition(b"?")
    return raw_path, unquote(raw_path.decode("latin-1"), encoding="utf-8", errors="replace"), query


def address_of(info: object) -> SocketAddress | None:
    """Host and port of one end of a transport; None for kinds of sockets that have no such address."""
    if isinstance(info, tuple) and len(info) >= 2 and isinstance(info[0], str) and isinstance(info[1], int):
        return info[0], info[1]
    return None
