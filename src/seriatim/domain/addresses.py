"""The address of a client: the peer itself, or the one that trusted proxies name. Pure."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_HOME_PREFIX = 64  # one subscriber owns a whole /64 of IPv6


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Addresses and networks such as `10.0.0.0/8`. Raises `ValueError` for anything else."""
    return tuple(ip_network(text.strip(), strict=False) for text in texts)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    parsed = _parse(host)
    return host == "localhost" if parsed is None else parsed.is_loopback


def client_address(peer: str, forwarded_for: Sequence[str], trusted: Sequence[Network]) -> str:
    """The last hop that no trusted proxy forwarded. `forwarded_for`: the X-Forwarded-For headers as received.

    Everything left of an untrusted hop may be forged, so it is never used.
    """
    client = _parse(peer)
    if client is None:
        return peer
    hops = [hop.strip() for header in forwarded_for for hop in header.split(",")]
    for hop in reversed(hops):
        before = _parse(hop)
        if before is None or not _is_trusted(client, trusted):
            break
        client = before
    return str(client)


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Whether one of the networks holds this address; False for what is no address."""
    parsed = _parse(address)
    return parsed is not None and _is_trusted(parsed, networks)


def rate_key(address: str) -> str:
    """What attempts are counted by: an IPv4 address, or the whole IPv6 network that one subscriber owns."""
    parsed = _parse(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, _HOME_PREFIX), strict=False))
    return address if parsed is None else str(parsed)


def _is_trusted(address: Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)


def _parse(text: str) -> Address | None:
    """An IPv4 address that came by way of IPv6 counts as IPv4; a zone or a port is cut off."""
    text = text.partition("%")[0]
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
