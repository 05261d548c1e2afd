"""CRC-32C (Castagnoli) of large arrays with NumPy alone, at some tens of MB/s.

The checksum is linear over GF(2): data are cut into lanes that run side by side, and the lanes' checksums are joined
by the matrix that says what a run of zero bytes does to a state. Source: RFC 3720, appendix B.4, for the polynomial.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78  # bits in the order the checksum reads them
_ALL_ONES = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
_MAX_LANES = 1 << 14

Words = NDArray[np.uint32]


def crc32c(data: bytes | memoryview | NDArray[np.uint8]) -> int:
    """Checksum of bytes.

    Args:
        data: bytes, or uint8[n].

    Returns:
        32 bits.
    """
    values = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data
    start = _apply(_power(_ONE_ZERO_BYTE, values.size), np.array([_ALL_ONES], np.uint32))
    return int(start[0]) ^ _from_zero(values) ^ _ALL_ONES


def masked(checksum: int) -> int:
    """The form LevelDB and TensorFlow store: rotated and offset, as a checksum of data that hold checksums is weak."""
    rotated = (checksum >> 15 | checksum << 17) & _ALL_ONES
    return (rotated + _MASK_DELTA) & _ALL_ONES


def _from_zero(values: NDArray[np.uint8]) -> int:
    """State after `values` from state 0, where zeros put in front change nothing."""
    lanes = 1
    while lanes < _MAX_LANES and lanes * lanes * 4 < values.size:
        lanes *= 2
    steps = -(-values.size // (2 * lanes))  # two bytes each
    padded = np.zeros(2 * lanes * steps, np.uint8)
    padded[padded.size - values.size :] = values
    pairs = np.ascontiguousarray(padded.view("<u2").reshape(lanes, steps).T)
    states = np.zeros(lanes, np.uint32)
    for pair in pairs:
        states = _TWO_BYTES[(states ^ pair) & 0xFFFF] ^ (states >> 16)
    shift = _power(_ONE_ZERO_BYTE, 2 * steps)
    while states.size > 1:
        states = _apply(shift, states[0::2]) ^ states[1::2]
        shift = _apply(shift, shift)
    return int(states[0])


def _byte_table() -> Words:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


def _apply(matrix: Words, states: Words) -> Words:
    """uint32[32] images of the single bits, applied to uint32[n] states."""
    result = np.zeros_like(states)
    for bit in range(32):
        result ^= ((states >> bit) & 1) * matrix[bit]
    return result


def _power(matrix: Words, exponent: int) -> Words:
    result = np.uint32(1) << np.arange(32, dtype=np.uint32)
    while exponent:
        if exponent & 1:
            result = _apply(matrix, result)
        matrix = _apply(matrix, matrix)
        exponent >>= 1
    return result


def _advance(states: Words) -> Words:
    """What one zero byte does."""
    advanced: Words = _ONE_BYTE[states & 0xFF] ^ (states >> 8)
    return advanced


_ONE_BYTE = _byte_table()
_TWO_BYTES = _advance(_advance(np.arange(1 << 16, dtype=np.uint32)))
_ONE_ZERO_BYTE = _advance(np.uint32(1) << np.arange(32, dtype=np.uint32))
