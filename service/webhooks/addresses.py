"""Which addresses a webhook may have: public ones over https, and hosts that a setting names.

The service stands where others do not, beside databases, dashboards and the metadata server of a cloud. So the address
is looked at when a webhook is made, and again, after the name was resolved, for each connection.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from pipelines.storage import web_guard
from service.errors import Fault, InvalidRequestError

MAX_URL_CHARACTERS = 2000


def check_url(url: str, named_hosts: Sequence[str]) -> None:
    """Refuse a URL that nothing will be sent to.

    Raises:
        InvalidRequestError: with the rule that it breaks.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise _refused("must be a URL", url) from error
    if not host or parts.scheme not in ("http", "https") or not url.isascii() or any(c <= " " for c in url):
        raise _refused("must be an https:// URL in ASCII", url)
    if parts.username is not None or parts.password is not None:
        raise _refused("must not carry a user name or a password", None)
    if "#" in url:
        raise _refused("must not have a fragment", url)
    if is_named(host, named_hosts):
        return
    if parts.scheme != "https":
        raise _refused("must start with https:// unless ELECTRA_WEBHOOK_HOSTS names the host", url)
    try:
        public_address(host, _port(parts))
    except (OSError, UnicodeError) as error:  # the latter of a name that is none, as `a..b`
        # One answer for all: what names mean inside is nobody's business.
        raise _refused("must be at a host that resolves to public addresses alone", url) from error


def public_address(host: str, port: int) -> str:
    """An address of a host, all of whose addresses are public.

    Raises:
        OSError: it has none, or has one that is not.
    """
    written = web_guard.written_address(host)
    if written is not None and not web_guard.is_public(written):
        raise web_guard.RefusedAddressError(host, written)
    found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for text in found:
        address = ipaddress.ip_address(text.partition("%")[0])
        if not web_guard.is_public(address):
            raise web_guard.RefusedAddressError(host, address)
    if not found:
        raise OSError("no address")
    return found[0]


def is_named(host: str, named_hosts: Sequence[str]) -> bool:
    """Whether a setting says that a host may be asked, whatever it is."""
    return host.lower() in {one.lower() for one in named_hosts}


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _refused(rule: str, url: str | None) -> InvalidRequestError:
    return InvalidRequestError(f"url {rule}.", [Fault("/url", rule, None if url is None else url[:200])])
