"""The tokens of one source and split as one line, over its shards."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines import storage
from pipelines.storage.artifacts import PreparedCorpus, Shard

log = logging.getLogger(__name__)


class TokenStream:
    """Shards laid end to end. Local ones are mapped, so workers of one machine share the pages; others are read once.

    Args:
        corpus: what to read.
        split: `train` or `validation`.
        source: one source, or None for all in order.

    Raises:
        StorageError: a shard is absent or has another size than its manifest says.
    """

    def __init__(self, corpus: PreparedCorpus, split: str, source: int | None) -> None:
        shards = corpus.shards_of(split, source)
        self._shards = [_open(corpus, shard) for shard in shards]
        self._ends = np.cumsum([shard.num_tokens for shard in shards], dtype=np.int64)
        self.num_tokens = int(self._ends[-1]) if shards else 0

    @property
    def shards(self) -> Sequence[npt.NDArray[Any]]:
        """The tokens of each shard, in order."""
        return self._shards

    def windows(self, starts: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
        """int64[n, width]: `width` tokens from each start on. The line is a ring: its end meets its beginning."""
        windows = np.empty((len(starts), width), np.int64)
        for window, start in zip(windows, starts.tolist(), strict=True):
            filled = 0
            while filled < width:
                at = (start + filled) % self.num_tokens
                number = int(np.searchsorted(self._ends, at, side="right"))
                shard = self._shards[number]
                inside = at - (int(self._ends[number]) - len(shard))
                taken = shard[inside : inside + width - filled]
                window[filled : filled + len(taken)] = taken
                filled += len(taken)
        return windows


def _open(corpus: PreparedCorpus, shard: Shard) -> npt.NDArray[Any]:
    uri = storage.join(corpus.uri, f"{shard.name}.bin")
    dtype = np.dtype(corpus.token_dtype).newbyteorder("<")
    path = storage.local_path(uri)
    if path is None:
        tokens = np.frombuffer(storage.read_bytes(uri), dtype)
    elif not path.exists():
        raise storage.StorageError(uri, "the shard is gone; delete the corpus's folder and it is prepared again")
    else:
        tokens = np.memmap(path, dtype, "r")
    if tokens.nbytes != shard.size_bytes:
        raise storage.StorageError(uri, f"the shard must have {shard.size_bytes} bytes, got {tokens.nbytes}")
    return tokens
