"""Which addresses of a network are anybody's, and which are only ours. Pure."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a name or an address to listen on is of this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bucket_of(address: str) -> str:
    """What failures are counted by: an address, or the network of 64 bits that a single user of IPv6 has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(found), 64), strict=False))
    return str(found)
