"""Random numbers as a pure function of (seed, step, row of the global batch, stream, column).

There is no generator state: a number can be computed on any device, by any worker, in any order, and is the same
integer each time. That is what lets a job resume exactly, or go on with another number of workers. The function is
SplitMix64 (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195): a Weyl sequence in the column through Stafford's
finaliser, where the start of each sequence is itself such a hash of the other four.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)
_WORD = 1 << 64


def _signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word: torch has no uint64 arithmetic, and two's complement needs none."""
    word %= _WORD
    return word - _WORD if word >= _WORD // 2 else word


def _mix_int(word: int) -> int:
    word %= _WORD
    word = (word ^ (word >> _SHIFTS[0])) * _FACTORS[0] % _WORD
    word = (word ^ (word >> _SHIFTS[1])) * _FACTORS[1] % _WORD
    return word ^ (word >> _SHIFTS[2])


def _xor_shift_(words: Tensor, shift: int) -> None:
    # >> on int64 copies the sign bit downwards; the mask makes it the unsigned shift of the definition.
    words.bitwise_xor_((words >> shift).bitwise_and_((1 << (64 - shift)) - 1))


def _mix_(words: Tensor) -> Tensor:
    """`_mix_int` of every element of an int64 tensor, in place."""
    _xor_shift_(words, _SHIFTS[0])
    words.mul_(_signed(_FACTORS[0]))
    _xor_shift_(words, _SHIFTS[1])
    words.mul_(_signed(_FACTORS[1]))
    _xor_shift_(words, _SHIFTS[2])
    return words


def stream_id(name: str) -> int:
    """The 64-bit number of a named stream (FNV-1a, then mixed); the same in every process, unlike `hash`."""
    word = 0xCBF29CE484222325
    for byte in name.encode():
        word = (word ^ byte) * 0x100000001B3 % _WORD
    return _signed(_mix_int(word))


_remembered_stream_id = lru_cache(maxsize=4096)(stream_id)


@dataclass(frozen=True, slots=True)
class Draws:
    """All random numbers of one step for some rows of its global batch.

    A stream names one use ("masking", "generator.layer0.attention"); no two uses may share a stream.
    """

    seed: int
    step: int | Tensor
    """A 0-dim int64 tensor keeps a compiled or captured step from being rebuilt at each step."""
    rows: Tensor
    """int64[B]; positions in the global batch."""

    def for_rows(self, rows: Tensor) -> Draws:
        """The draws of the same step for other rows."""
        return Draws(self.seed, self.step, rows)

    def words(self, stream: str | int, num: int) -> Tensor:
        """int64[B, num] of 64 random bits each."""
        columns = torch.arange(num, device=self.rows.device).mul_(_signed(_GOLDEN))
        return _mix_(self.row_keys(stream)[:, None] + columns)

    def uniform(self, stream: str | int, num: int) -> Tensor:
        """float32[B, num], uniform and strictly inside (0, 1).

        The values are the midpoints (k + ½) / 2²³: each is exact in float32, so neither 0 nor 1 can be rounded to.
        """
        top_bits = (self.words(stream, num) >> 41).bitwise_and_((1 << 23) - 1)
        return top_bits.to(torch.float32).add_(0.5).mul_(2.0**-23)

    def bytes(self, stream: str | int, num: int) -> Tensor:
        """uint8[B, num], eight from each hash (in little-endian order, which every machine torch supports has)."""
        words = self.words(stream, -(-num // 8))
        return words.view(torch.uint8)[:, :num]

    def row_keys(self, stream: str | int) -> Tensor:
        """int64[B]; where the Weyl sequence of each row starts in this stream."""
        if isinstance(stream, int):
            stream_word = _signed(_mix_int(stream + _GOLDEN))
        else:  # in a graph it is a constant, and torch.compile warns of what remembers
            stream_word = stream_id(stream) if torch.compiler.is_compiling() else _remembered_stream_id(stream)
        prefix = _mix_int(_mix_int(self.seed + _GOLDEN) + stream_word)
        keys: Tensor
        if isinstance(self.step, Tensor):
            step_key = _mix_((self.step + 1).mul_(_signed(_GOLDEN)).add_(_signed(prefix)))
            keys = (self.rows + 1).mul_(_signed(_GOLDEN)).add_(step_key)
        else:
            step_word = _mix_int((self.step + 1) * _GOLDEN + prefix)
            keys = (self.rows + 1).mul_(_signed(_GOLDEN)).add_(_signed(step_word))
        return _mix_(keys)
