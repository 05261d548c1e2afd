"""Ports of this machine: which are free, and what to say when one is not."""

from __future__ import annotations

import random
import socket

from service.local.errors import PortInUseError

# Below the range outgoing connections take theirs from (32768 up on Linux): a port given up for the seconds of a
# restart must still be free afterwards, and Ray opens connections all the time.
_CANDIDATES = range(20_000, 32_000)
_ATTEMPTS = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1 at this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        # As servers do: connections of an earlier server that still linger are no obstacle.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def claim_port(wanted: int, title: str, option: str, taken: set[int]) -> int:
    """The wanted port, or a free one for 0. It is added to `taken`, whose ports are not given again.

    Raises:
        PortInUseError: the wanted port is not free.
    """
    if wanted:
        if wanted in taken or not is_free(wanted):
            raise PortInUseError(wanted, title, option)
        port = wanted
    else:
        port = _free_port(taken)
    taken.add(port)
    return port


def _free_port(taken: set[int]) -> int:
    rng = random.Random()  # seeded by the system, so that stacks started together try different ports
    for _ in range(_ATTEMPTS):
        port = rng.choice(_CANDIDATES)
        if port not in taken and is_free(port):
            return port
    raise PortInUseError(_CANDIDATES.start, f"any component (up to {_CANDIDATES.stop - 1})", "--service-port")
