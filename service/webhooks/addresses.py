"""Which addresses a webhook may have: public ones over https, and hosts that a setting names.

The service stands where others do not, beside databases, dashboards and the metadata server of a cloud. So the address
is looked at when a webhook is made, and again, after the name was resolved, for each connection.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
import time
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from pipelines.storage import web_guard
from service.errors import Fault, InvalidRequestError

MAX_URL_CHARACTERS = 2000
LOOKUP_SECONDS = 5.0
"""For a name, when a webhook is made."""
MAX_LOOKUPS = 32
_lookups = threading.BoundedSemaphore(MAX_LOOKUPS)


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
        resolved(host, _port(parts), named_hosts, LOOKUP_SECONDS)
    except (OSError, UnicodeError) as error:  # the latter of a name that is none, as `a..b`
        # One answer for all: what names mean inside is nobody's business.
        raise _refused("must be at a host that resolves to public addresses alone", url) from error


def resolved(host: str, port: int, named_hosts: Sequence[str], seconds: float) -> Sequence[str]:
    """The addresses of a host, all of them public unless a setting names it, found in time.

    The system's look-up knows no end of its own. It runs on a thread that is left alone when the time is over; of
    these there are `MAX_LOOKUPS` at most.

    Raises:
        TimeoutError: it was not found in so many seconds.
        OSError: it has none, or has one that is not public.
        UnicodeError: it is no name.
    """
    answers: queue.SimpleQueue[Sequence[str] | Exception] = queue.SimpleQueue()
    look_up = _addresses if is_named(host, named_hosts) else public_addresses
    deadline = time.monotonic() + seconds

    def look() -> None:
        try:
            answers.put(look_up(host, port))
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            answers.put(error)
        finally:
            _lookups.release()

    if not _lookups.acquire(timeout=max(0.0, seconds)):
        raise TimeoutError("too many names are being looked up")
    threading.Thread(target=look, name="webhook-lookup", daemon=True).start()
    try:
        answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        raise TimeoutError(f"{host} was not looked up in {seconds:g} seconds") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def public_addresses(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, all of which are public.

    Raises:
        OSError: it has none, or has one that is not.
    """
    written = web_guard.written_address(host)
    if written is not None and not web_guard.is_public(written):
        raise web_guard.RefusedAddressError(host, written)
    found = _addresses(host, port)
    for text in found:
        address = ipaddress.ip_address(text.partition("%")[0])
        if not web_guard.is_public(address):
            raise web_guard.RefusedAddressError(host, address)
    return found


def _addresses(host: str, port: int) -> Sequence[str]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not entries:
        raise OSError("no address")
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def is_named(host: str, named_hosts: Sequence[str]) -> bool:
    """Whether a setting says that a host may be asked, whatever it is."""
    return host.lower() in {one.lower() for one in named_hosts}


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _refused(rule: str, url: str | None) -> InvalidRequestError:
    return InvalidRequestError(f"url {rule}.", [Fault("/url", rule, None if url is None else url[:200])])
