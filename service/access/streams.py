"""How many streams each principal holds open, in one process. Of one event loop, so it takes no lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import TooManyFollowersError


class OpenStreams:
    """So many of each principal: nobody takes the places of all others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    @contextmanager
    def one(self, name: str) -> Iterator[None]:
        """Count a stream as long as it is open.

        Raises:
            TooManyFollowersError: the principal has as many as it may.
        """
        if self._open[name] >= self._most:
            raise TooManyFollowersError(
                f"ELECTRA_MAX_STREAMS_PER_PRINCIPAL is {self._most}, and so many of yours are open. Close one of them."
            )
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]  # a name that is never seen again takes no memory

    def __len__(self) -> int:
        return self._open.total()
