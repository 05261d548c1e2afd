"""Web servers that a restricted reader may not ask: whatever lies inside our own network.

A spec names addresses, and the machines that read them stand where others do not: beside databases, dashboards and the
metadata server of a cloud. So every connection is checked after the name was resolved, on every redirect too, and the
address that was checked is the one that is connected to: a name that resolves otherwise the second time gains nothing.

Off unless `ELECTRA_WEB_GUARD` is set, as the service sets it for its jobs: to names of hosts that may be asked
nevertheless, divided by commas, or to `-` for none.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

VARIABLE = "ELECTRA_WEB_GUARD"
NO_HOSTS = "-"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All that has been given out of IPv6. What lies outside and is no address inside another one is nobody's or ours:
`::127.0.0.1` and `fec0::1`, which Python calls global.
"""
_OF_A_CLOUD = frozenset({ipaddress.IPv4Address("168.63.129.16")})
"""Azure's, by which its machines are told what they are: public in form, and answered within each of them."""

_installed: str | None = None


class RefusedAddressError(OSError):
    """The host is or resolves to an address that is not public."""

    def __init__(self, host: str, address: object) -> None:
        super().__init__(f"the host must have public addresses alone, got {host} at {address}")


def install(hosts: Sequence[str] | None) -> None:
    """Guard this process, but for some hosts; None asks the environment again."""
    global _installed
    _installed = None if hosts is None else setting(hosts)


def setting(hosts: Sequence[str]) -> str:
    """What the variable is set to."""
    return ",".join(host.lower() for host in hosts) or NO_HOSTS


def current() -> str | None:
    """The guard in force; None for none."""
    return os.environ.get(VARIABLE) or None if _installed is None else _installed


def written_address(host: str) -> Address | None:
    """The address that a host of a URL is, in any of the ways to write one (`127.1`, `0x7f000001`); None of a name."""
    bare = host.strip("[]").partition("%")[0]
    try:
        return ipaddress.ip_address(bare)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(bare))
    except (OSError, ValueError):
        return None


def is_public(address: Address) -> bool:
    """Whether an address is anybody's; those that carry another inside are what that one is."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast and address not in _OF_A_CLOUD


def check_host(host: str, hosts: str) -> None:
    """Refuse a host that is written as an address that is not public; names are checked when they are resolved.

    Raises:
        RefusedAddressError: it is.
    """
    address = written_address(host)
    if host.lower() not in hosts.split(",") and address is not None and not is_public(address):
        raise RefusedAddressError(host, address)


def guarded_client(hosts: str) -> Callable[..., Any]:
    """What makes fsspec's session: one that connects to public addresses and to `hosts` alone."""
    import aiohttp
    from aiohttp.abc import AbstractResolver
    from aiohttp.resolver import DefaultResolver

    class PublicResolver(AbstractResolver):
        def __init__(self) -> None:
            self._resolver = DefaultResolver()

        async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> Any:
            found = await self._resolver.resolve(host, port, family)
            if host.lower() not in hosts.split(","):
                for one in found:
                    address = ipaddress.ip_address(one["host"].partition("%")[0])
                    if not is_public(address):
                        raise RefusedAddressError(host, address)
            return found

        async def close(self) -> None:
            await self._resolver.close()

    async def check(request: Any, handler: Any) -> Any:
        # Hosts that are addresses are never resolved. This sees each hop of a redirect.
        check_host(request.url.host or "", hosts)
        return await handler(request)

    async def make(**options: Any) -> Any:
        # No cache of names: what was resolved is connected to, and nothing else is.
        connector = aiohttp.TCPConnector(resolver=PublicResolver(), use_dns_cache=False)
        return aiohttp.ClientSession(connector=connector, middlewares=(check,), trust_env=False, **options)

    return make
