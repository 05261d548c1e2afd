"""Archives while they are sent: so many at a time, each read only as fast as it is taken."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import anyio
from anyio import to_thread

from service.errors import TooManyFollowersError
from service.shelf.tar_stream import Member, stream_tar


class Archives:
    """Counts those that are open, in one process. Of one event loop, so it takes no lock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.num_open = 0

    async def sent(self, members: Sequence[Member]) -> AsyncGenerator[bytes]:
        """The pieces of an archive. The first is empty, and says that there is room.

        Raises:
            TooManyFollowersError: as many are sent as may be.
            ChangedWhileReadError: as `stream_tar`.
            StorageError: a file cannot be read.
        """
        if self.num_open >= self._most:
            raise TooManyFollowersError(
                f"ELECTRA_MAX_EXPORT_DOWNLOADS is {self._most}, and so many exports are sent now. Try again later."
            )
        self.num_open += 1
        pieces = stream_tar(members)
        try:
            yield b""
            while (piece := await to_thread.run_sync(next, pieces, None)) is not None:
                yield piece
        finally:
            self.num_open -= 1
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(pieces.close)
