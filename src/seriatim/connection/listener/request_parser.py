"""Bytes to requests: httptools' parser, with a bound on everything that it keeps or that nobody reads.

One count covers heads, trailers, chunk extensions and empty lines: the bytes since the parser has last got anywhere.
"""

from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from seriatim.connection.listener.request import Request, SocketAddress, split_target
from seriatim.connection.task_group import report
from seriatim.domain import limits


class RequestRefused(Exception):
    """The bytes cannot be parsed further: status, code and message of the last answer of this connection."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.answer = (status, code, message)


class RequestSink(Protocol):
    """Takes what was parsed."""

    @property
    def takes_requests(self) -> bool:
        """False: parse no further for now."""
        ...

    def head_received(self, request: Request) -> None: ...

    def head_refused(self, refused: RequestRefused) -> None:
        """A complete head that is refused. Bytes after it are parsed, and discarded by the sink."""
        ...

    def body_received(self, data: bytes) -> None: ...

    def request_complete(self) -> None: ...


class RequestParser:
    """`head_open`: a head has begun and not ended. `upgraded`: the bytes after a request for another protocol."""

    def __init__(
        self, sink: RequestSink, *, scheme: str, client: SocketAddress | None, server: SocketAddress | None
    ) -> None:
        self.head_open = False
        self.upgraded: bytes | None = None
        self._sink = sink
        self._scheme = scheme
        self._client = client
        self._server = server
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._unparsed = b""
        self._at = 0  # where in `_unparsed` the next piece begins
        self._in_body = False
        self._progress = 0  # events in the piece that was parsed last
        self._heads_begun = 0  # in that piece
        self._overhead_bytes = 0  # since the last event; less after a piece that held one, by at most that piece
        self._head_bytes = 0
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []

    @property
    def pending(self) -> bool:
        """Bytes were kept because the sink took no more requests."""
        return self._at < len(self._unparsed)

    def feed(self, data: bytes) -> None:
        """Raises `RequestRefused`. While the sink takes no requests the bytes are kept: read no more, and `resume`."""
        self._unparsed, self._at = (self._unparsed[self._at :] + data if self.pending else data), 0
        self.resume()

    def resume(self) -> None:
        """Raises `RequestRefused`."""
        while self.pending and self._parser is not None and self._sink.takes_requests:
            start, self._at = self._at, self._piece_end()
            self._parse(self._unparsed[start : self._at])

    def close(self) -> None:
        """Parser and callbacks refer to each other; this frees both."""
        self._parser = None
        self._unparsed, self._at = b"", 0

    def _piece_end(self) -> int:
        """Pieces hold the end of one head at most, so that the sink can stop the parser between two requests."""
        first = self._unparsed.find(_HEAD_END, self._at)
        if first < 0 or self._unparsed.find(_HEAD_END, first + len(_HEAD_END)) < 0:
            return len(self._unparsed)
        return first + len(_HEAD_END)

    def _parse(self, piece: bytes) -> None:
        assert self._parser is not None
        idle = not self.head_open and not self._in_body
        self._progress = self._heads_begun = 0
        try:
            self._parser.feed_data(piece)
        except HttpParserUpgrade as upgrade:
            self.upgraded = piece[upgrade.args[0] :] + self._unparsed[self._at :]
            self.close()
            return
        except HttpParserError as error:
            if error.__context__ is not None:
                report(error.__context__)  # not the peer's fault: a bug in one of the callbacks below
            raise RequestRefused(400, *_NOT_HTTP) from None
        if not self._progress:
            self._overhead_bytes += len(piece)
        else:  # all of it, if the head that began here is open: the parser reports a header only when it is complete
            only_begun = idle and self._progress == self._heads_begun == 1
            self._overhead_bytes = len(piece) if only_begun else 0
        if self._overhead_bytes > limits.HEAD_BYTES_MAX or (
            self.head_open and self._head_bytes > limits.HEAD_BYTES_MAX
        ):
            raise RequestRefused(431, *_HEAD_TOO_LARGE)

    # --- httptools calls ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.head_open = True
        self._progress += 1
        self._heads_begun += 1
        self._head_bytes = 0
        self._target, self._headers = b"", []

    def on_url(self, target: bytes) -> None:
        self._target += target
        self._head_bytes += len(target)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_open:  # otherwise it is a trailer, which is ignored
            self._head_bytes += len(name) + len(value) + 4
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.head_open = False
        self._in_body = True
        self._progress += 1
        try:
            request = self._request()
        except RequestRefused as refused:
            self._sink.head_refused(refused)
        else:
            self._sink.head_received(request)

    def on_body(self, data: bytes) -> None:
        self._progress += 1
        self._sink.body_received(data)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._progress += 1
        self._sink.request_complete()

    def _request(self) -> Request:
        if self._head_bytes > limits.HEAD_BYTES_MAX:
            raise RequestRefused(431, *_HEAD_TOO_LARGE)
        assert self._parser is not None
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise RequestRefused(400, *_NOT_HTTP)
        target = split_target(self._target)
        hosts = sum(name == b"host" for name, _ in self._headers)
        if target is None or hosts > 1 or (hosts == 0 and version == "1.1"):
            raise RequestRefused(400, "BAD_REQUEST", "a request names a path and exactly one host")
        upgrade = self._parser.should_upgrade()
        return Request(
            method=self._parser.get_method().decode(),
            raw_path=target[0],
            path=target[1],
            query=target[2],
            headers=tuple(self._headers),
            http_version=version,
            keep_alive=self._parser.should_keep_alive() and not upgrade,  # after an upgrade the parser reads no more
            upgrade=upgrade,
            has_body=any(name in _BODY_HEADERS and value != b"0" for name, value in self._headers),
            scheme=self._scheme,
            client=self._client,
            server=self._server,
        )


_HEAD_END = b"\r\n\r\n"
_NOT_HTTP = ("BAD_REQUEST", "this is not HTTP/1.1")
_HEAD_TOO_LARGE = ("HEADERS_TOO_LARGE", "the head of this request is too large; send less")
_BODY_HEADERS = (b"content-length", b"transfer-encoding")
