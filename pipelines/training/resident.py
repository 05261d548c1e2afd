"""Training tokens in the memory of a device: a step then sends it where its rows stand, and not the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.rows.loader import Int64s, inner_width
from pipelines.rows.token_stream import TokenStream
from pipelines.storage.artifacts import SpecialTokenIds

LARGEST_SHARE = 0.25
"""Of a device's free memory that tokens may take: the rest is for weights, moments and activations."""
COPIED_TOKENS = 1 << 26
"""Tokens on the way to the device at a time."""
_STORED = {2: (np.int16, torch.int16), 4: (np.int32, torch.int32)}
"""Types of tokens by bytes: the bits of unsigned ids, for torch indexes few unsigned types."""


class ResidentTokens:
    """The tokens of all sources, end to end."""

    def __init__(self, streams: Sequence[TokenStream], special: SpecialTokenIds, device: torch.device) -> None:
        """Copy.

        Args:
            streams: one per source.
            special: ids that begin and end a row.
            device: where the tokens go.
        """
        sizes = [stream.num_tokens for stream in streams]
        bytes_per_token = _bytes_per_token(streams)
        as_numpy, as_torch = _STORED[bytes_per_token]
        self._special = special
        self._bits = (1 << 8 * bytes_per_token) - 1
        self._tokens = torch.empty(sum(sizes), dtype=as_torch, device=device)
        self._sizes = torch.tensor(sizes, device=device)
        self._firsts = torch.tensor([0, *np.cumsum(sizes)[:-1].tolist()], device=device)
        end = 0
        for stream in streams:
            for shard in stream.shards:
                for first in range(0, len(shard), COPIED_TOKENS):
                    # Of the machine's own byte order; shards are little-endian everywhere.
                    part = shard[first : first + COPIED_TOKENS].astype(shard.dtype.newbyteorder("="))
                    self._tokens[end : end + len(part)] = torch.from_numpy(part.view(as_numpy)).to(device)
                    end += len(part)

    def rows(self, sources: Int64s, starts: Int64s, sequence_length: int) -> Tensor:
        """Rows as `TrainingRows.pieces` gives them, made on the device.

        Args:
            sources: int64[n].
            starts: int64[n], the first token of each row in its source.
            sequence_length: tokens of a row, [CLS] and [SEP] included.

        Returns:
            int64[n, sequence_length] on the device.
        """
        device = self._tokens.device
        where = torch.from_numpy(np.stack([sources, starts]))
        if device.type == "cuda":
            where = where.pin_memory()  # from pageable memory the copy would wait for the steps before it
        source, start = where.to(device, non_blocking=True)
        within = start[:, None] + torch.arange(inner_width(sequence_length), device=device)
        index = within % self._sizes[source][:, None] + self._firsts[source][:, None]
        rows = torch.empty(len(sources), sequence_length, dtype=torch.int64, device=device)
        rows[:, 0], rows[:, -1] = self._special.cls, self._special.sep
        rows[:, 1:-1] = self._tokens[index].to(torch.int64) & self._bits
        return rows


def fits(streams: Sequence[TokenStream], device: torch.device) -> bool:
    """Whether a GPU has room for the tokens; no other device gains by them."""
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return sum(stream.num_tokens for stream in streams) * _bytes_per_token(streams) <= LARGEST_SHARE * free


def _bytes_per_token(streams: Sequence[TokenStream]) -> int:
    return max(shard.itemsize for stream in streams for shard in stream.shards)
