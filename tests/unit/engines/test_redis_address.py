"""The URL that says where Redis is."""

import pytest

from seriatim.engines.redis.address import RedisAddress, RedisLogin


def test_a_plain_url_is_one_server_with_the_usual_port() -> None:
    assert RedisAddress.parse("redis://cache") == RedisAddress(hosts=(("cache", 6379),))


def test_a_full_url_names_user_password_port_and_database() -> None:
    assert RedisAddress.parse("redis://app:s%40cret@[::1]:7000/3") == RedisAddress(
        hosts=(("::1", 7000),), database=3, login=RedisLogin("app", "s@cret")
    )


def test_a_password_may_come_without_a_user() -> None:
    assert RedisAddress.parse("redis://:secret@cache").login == RedisLogin(None, "secret")


def test_sentinels_are_several_hosts_and_the_name_of_a_service() -> None:
    url = "redis+sentinel://app:one@a,b:26380/chat/2?sentinel_username=watch&sentinel_password=two"
    assert RedisAddress.parse(url) == RedisAddress(
        hosts=(("a", 26379), ("b", 26380)),
        service="chat",
        database=2,
        login=RedisLogin("app", "one"),
        sentinel_login=RedisLogin("watch", "two"),
    )


def test_tls_is_asked_for_by_the_scheme() -> None:
    address = RedisAddress.parse("rediss://cache?ssl_ca_certs=/ca.pem&ssl_certfile=/me.pem&ssl_keyfile=/me.key")
    assert (address.tls, address.ca_file, address.certificate_file, address.key_file) == (
        True,
        "/ca.pem",
        "/me.pem",
        "/me.key",
    )
    assert RedisAddress.parse("rediss+sentinel://a/chat").tls
    assert not RedisAddress.parse("redis://cache").tls


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://cache", "begins with one of redis://"),
        ("cache:6379", "begins with one of redis://"),
        ("redis://", "names a host"),
        ("redis://:secret@", "names a host"),
        ("redis://cache:sixty/0", "is not a number"),
        ("redis://cache:70000/0", "is not a number"),
        ("redis://cache/zero", "number of a database"),
        ("redis://cache/1/2", "number of a database"),
        ("redis://cache/²", "number of a database"),
        ("redis://a,b/0", "several are sentinels"),
        ("redis://user@cache", "has a password too"),
        ("redis+sentinel://a,b", "names the service"),
        ("redis+sentinel://a/chat/zero", "number of a database"),
        ("redis://cache?timeout=5", "no option 'timeout'"),
        ("redis://cache?ssl_ca_certs=/ca.pem", "no option 'ssl_ca_certs'"),
        ("rediss://cache?ssl_cert_reqs=none", "no option 'ssl_cert_reqs'"),
    ],
)
def test_a_wrong_url_is_refused_with_what_to_mend(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        RedisAddress.parse(url)


@pytest.mark.parametrize("url", ["redis://app:hunter2@cache:x", "redis://app:hunter2@cache/x", "redid://a:hunter2@b"])
def test_no_password_is_ever_in_a_complaint(url: str) -> None:
    with pytest.raises(ValueError, match="Redis URL") as raised:
        RedisAddress.parse(url)
    assert "hunter2" not in str(raised.value)


def test_no_password_is_ever_in_the_text_of_an_address() -> None:
    url = "redis+sentinel://app:hunter2@a/chat?sentinel_password=hunter3"
    assert "hunter" not in f"{RedisAddress.parse(url)!r} {RedisAddress.parse(url)}"


def test_certificates_that_cannot_be_read_are_named_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="certificates for Redis cannot be read"):
        RedisAddress.parse("rediss://cache?ssl_ca_certs=/nowhere/ca.pem").tls_context()
