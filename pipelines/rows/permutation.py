"""Shuffling without a list: keyed permutations of [0, n) in constant memory, many values at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

_ROUNDS = 6
"""Of a Feistel network: four make it a strong pseudorandom permutation (Luby and Rackoff 1988), two are to spare for
the plain mixing function."""


def mix(seed: int, *values: npt.ArrayLike) -> UInt64s:
    """64 well-mixed bits for each tuple (seed, value, …); the values broadcast against each other."""
    state = _scramble(np.full(1, seed % 2**64, np.uint64))
    for value in values:
        state = _scramble(state ^ _scramble(np.atleast_1d(np.asarray(value)).astype(np.uint64)))
    return state


def permute(values: Int64s, size: npt.ArrayLike, keys: UInt64s) -> Int64s:
    """Where each value goes in a permutation of [0, size) that its key decides.

    Args:
        values: int64[n], each in [0, size).
        size: one, or int64[n]: how many things are permuted.
        keys: uint64, broadcast over the values.

    Returns:
        int64[n]. For one size and one key, distinct values go to distinct places.
    """
    sizes = np.broadcast_to(np.asarray(size, np.uint64), values.shape)
    keys = np.broadcast_to(keys, values.shape)
    half_bits = _half_bits(sizes)
    places = _feistel(values.astype(np.uint64), half_bits, keys)
    # Cycle walking: the network permutes a power of four; a place outside goes round again until it is inside.
    outside = np.flatnonzero(places >= sizes)
    while len(outside):
        places[outside] = _feistel(places[outside], half_bits[outside], keys[outside])
        outside = outside[places[outside] >= sizes[outside]]
    return places.astype(np.int64)


def _half_bits(sizes: UInt64s) -> UInt64s:
    """Bits h of half a block: the smallest with 4^h ≥ size, exactly, by comparison instead of logarithms."""
    powers = np.uint64(1) << (np.uint64(2) * np.arange(1, 32, dtype=np.uint64))
    return (np.searchsorted(powers, sizes) + 1).astype(np.uint64)


def _feistel(values: UInt64s, half_bits: UInt64s, keys: UInt64s) -> UInt64s:
    mask = (np.uint64(1) << half_bits) - np.uint64(1)
    left, right = values >> half_bits, values & mask
    for number in range(_ROUNDS):
        left, right = right, left ^ (_scramble(right + keys * np.uint64(2 * number + 3)) & mask)
    return (left << half_bits) | right


def _scramble(state: UInt64s) -> UInt64s:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014). Arrays only: numpy warns where scalars overflow."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
