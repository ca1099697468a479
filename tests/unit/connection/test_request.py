"""What a request line names: path and query, however a client or a proxy writes them."""

import pytest

from seriatim.connection.listener.request import address_of, split_target


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/a/b?q=1", b"/a/b", b"q=1"),
        (b"/a?b?c", b"/a", b"b?c"),
        (b"/a#part?q", b"/a", b""),
        (b"/", b"/", b""),
        (b"*", b"*", b""),
        (b"http://host/a/b?q=1", b"/a/b", b"q=1"),
        (b"HTTPS://host:8080/a", b"/a", b""),
        (b"http://host", b"/", b""),
    ],
)
def test_a_target_is_split_into_path_and_query(target: bytes, path: bytes, query: bytes) -> None:
    assert split_target(target) == (path, path.decode(), query)


def test_a_path_is_shown_as_it_was_sent_and_as_it_is_meant() -> None:
    assert split_target(b"/%C3%BC%20b") == (b"/%C3%BC%20b", "/ü b", b"")


@pytest.mark.parametrize("target", [b"", b"a", b"host:80", b"ftp://host/a"])
def test_what_names_no_path_is_none(target: bytes) -> None:
    assert split_target(target) is None


@pytest.mark.parametrize(
    ("info", "found"),
    [
        (("127.0.0.1", 80), ("127.0.0.1", 80)),
        (("::1", 80, 0, 0), ("::1", 80)),
        (("127.0.0.1",), None),
        (("127.0.0.1", "80"), None),
        ((1, 80), None),
        ("/run/socket", None),
        (None, None),
    ],
)
def test_an_address_is_a_host_and_a_port_or_none(info: object, found: tuple[str, int] | None) -> None:
    assert address_of(info) == found
