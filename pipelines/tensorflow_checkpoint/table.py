"""The sorted table a checkpoint's `.index` is: LevelDB's file format with TensorFlow's names for things.

A footer of 48 bytes points to the index block, whose values point to the data blocks. In a block, every key leaves out
what it shares with the key before it. Source: LevelDB, doc/table_format.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.errors import CheckpointError
from pipelines.tensorflow_checkpoint.crc32c import crc32c, masked
from pipelines.tensorflow_checkpoint.fields import read_varint

FOOTER_BYTES = 48
MAGIC = 0xDB4775248B80FB57
_TRAILER_BYTES = 5
_UNCOMPRESSED = 0
_COMPRESSIONS = {1: "snappy"}


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a whole table, in order of the keys.

    Raises:
        CheckpointError: it is no table, or is cut off, compressed or damaged.
    """
    if len(data) < FOOTER_BYTES:
        raise CheckpointError(f"an index must have at least {FOOTER_BYTES} bytes, got {len(data)}")
    footer = data[-FOOTER_BYTES:]
    magic = int.from_bytes(footer[-8:], "little")
    if magic != MAGIC:
        raise CheckpointError(
            f"an index must end with the number {MAGIC:#x} of a table, got {magic:#x}: it is cut off, or no checkpoint "
            "of TensorFlow's format V2"
        )
    _, position = _read_handle(footer, 0)  # of the meta index, which TensorFlow leaves empty
    index, _ = _read_handle(footer, position)
    for _, handle in _entries(_read_block(data, *index)):
        yield from _entries(_read_block(data, *_read_handle(handle, 0)[0]))


def _read_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Offset and size of a block, and the position after them."""
    offset, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (offset, size), position


def _read_block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER_BYTES > len(data) - FOOTER_BYTES:
        raise CheckpointError(f"a block must end before the footer at byte {len(data) - FOOTER_BYTES}, got {end}")
    compression = data[end]
    if int.from_bytes(data[end + 1 : end + _TRAILER_BYTES], "little") != masked(crc32c(data[offset : end + 1])):
        raise CheckpointError(f"the block at byte {offset} must have the checksum that stands behind it: it is damaged")
    if compression != _UNCOMPRESSED:
        name = _COMPRESSIONS.get(compression, f"method {compression}")
        raise CheckpointError(f"the blocks of an index must not be compressed, as TensorFlow writes them, got {name}")
    return data[offset:end]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    num_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (num_restarts + 1)
    if end < 0:
        raise CheckpointError(
            f"a block of {len(block)} bytes must have room for its restart points, got {num_restarts}"
        )
    key, position = b"", 0
    while position < end:
        shared, position = read_varint(block, position)
        unshared, position = read_varint(block, position)
        value_size, position = read_varint(block, position)
        if shared > len(key) or position + unshared + value_size > end:
            raise CheckpointError(f"the entry at byte {position} of a block must lie inside it: the index is damaged")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + value_size]
        position += value_size
