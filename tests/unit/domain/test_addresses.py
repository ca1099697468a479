"""Whom an attempt is counted for: no client can hide behind a header, and none pays for its proxy's other clients."""

import pytest

from seriatim.domain.addresses import client_address, parse_networks, rate_key

TRUSTED = parse_networks(["10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "client"),
    [
        ("1.2.3.4", [], "1.2.3.4"),
        ("1.2.3.4", ["9.9.9.9"], "1.2.3.4"),  # every client can write a header
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["9.9.9.9"], "9.9.9.9"),
        ("10.0.0.1", ["8.8.8.8, 9.9.9.9"], "9.9.9.9"),  # what stands left of it is hearsay
        ("10.0.0.1", ["8.8.8.8", "9.9.9.9 , 10.2.2.2"], "9.9.9.9"),
        ("10.0.0.1", ["9.9.9.9, nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["10.3.3.3"], "10.3.3.3"),
        ("::ffff:10.0.0.1", ["::ffff:9.9.9.9"], "9.9.9.9"),
        ("fd00::1%eth0", ["[2001:db8::1]:443"], "2001:db8::1"),
        ("10.0.0.1", ["9.9.9.9:1234"], "9.9.9.9"),
        ("", ["9.9.9.9"], ""),  # a socket without addresses
    ],
)
def test_the_client_is_the_last_hop_that_no_trusted_proxy_stands_for(
    peer: str, forwarded_for: list[str], client: str
) -> None:
    assert client_address(peer, forwarded_for, TRUSTED) == client


def test_all_addresses_of_one_ipv6_subscriber_count_as_one() -> None:
    assert rate_key("2001:db8:1:2:aaaa::1") == rate_key("2001:db8:1:2:bbbb::2")
    assert rate_key("2001:db8:1:2::1") != rate_key("2001:db8:1:3::1")
    assert rate_key("::ffff:1.2.3.4") == rate_key("1.2.3.4") == "1.2.3.4"
    assert rate_key("nowhere") == "nowhere"


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match="elsewhere"):
        parse_networks(["elsewhere"])
