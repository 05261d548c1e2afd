"""Numbers and messages on the wire: variable-length integers, and protocol buffers read without their compiler."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.errors import CheckpointError

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned integer of seven bits a byte, lowest first, and the position after it.

    Raises:
        CheckpointError: the data end inside it, or it is longer than 64 bits.
    """
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise CheckpointError(f"an integer at byte {position} must end within its {len(data)} bytes")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise CheckpointError(f"an integer before byte {position} must have at most 64 bits")


def read_message(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protocol buffer: integers, or bytes for strings and messages inside.

    Raises:
        CheckpointError: it is cut off, or has a wire type that no longer exists.
    """
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = read_varint(data, position)
            yield number, value
            continue
        if wire_type == _LENGTH:
            size, position = read_varint(data, position)
        elif wire_type in (_FIXED32, _FIXED64):
            size = 4 if wire_type == _FIXED32 else 8
        else:
            raise CheckpointError(f"field {number} must have wire type 0, 1, 2 or 5, got {wire_type}")
        content = data[position : position + size]
        if len(content) < size:
            raise CheckpointError(f"field {number} must have {size} bytes, got {len(content)}")
        position += size
        yield number, content if wire_type == _LENGTH else int.from_bytes(content, "little")
