"""The tensors of a checkpoint: where each lies, and their values as NumPy arrays.

Source for the fields: TensorFlow, core/protobuf/tensor_bundle.proto and core/framework/tensor_shape.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pipelines import storage
from pipelines.errors import CheckpointError
from pipelines.tensorflow_checkpoint.crc32c import crc32c, masked
from pipelines.tensorflow_checkpoint.fields import read_message
from pipelines.tensorflow_checkpoint.table import read_table

INDEX_SUFFIX = ".index"
_BFLOAT16 = 14
_DTYPES = {1: "<f4", 3: "<i4", 9: "<i8", _BFLOAT16: "<u2", 19: "<f2"}
"""TensorFlow's numbers of the types that are read, as NumPy's types of the bytes."""
_COPY_BYTES = 8 << 20


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies."""

    dtype: int
    """TensorFlow's number of its type."""
    shape: tuple[int, ...]
    shard: int
    """Number of the data file."""
    offset: int
    """First byte in it."""
    size_bytes: int
    checksum: int
    """Masked CRC-32C of the bytes."""
    is_partitioned: bool
    """Its values lie under other keys, one for each slice."""


class _Forward:
    """A stream read at growing offsets; what lies between is read too where it cannot seek, as over http."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._position = 0

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from an offset on; fewer where the file ends."""
        if self._stream.seekable():
            self._stream.seek(offset)
            return self._stream.read(size)
        while self._position < offset and (passed := self._stream.read(min(_COPY_BYTES, offset - self._position))):
            self._position += len(passed)
        data = self._stream.read(size)
        self._position += len(data)
        return data


class TensorflowCheckpoint:
    """A checkpoint whose index has been read; tensors are read when asked for."""

    def __init__(self, prefix: str) -> None:
        """Read the index.

        Args:
            prefix: URI without `.index`: a path, `s3://`, `gs://` or `https://`.

        Raises:
            CheckpointError: it is no checkpoint of format V2, or is damaged.
            StorageError: there is no index, or it cannot be read.
        """
        self.prefix = storage.normalise(prefix.removesuffix(INDEX_SUFFIX))
        self.num_shards, self.entries = self._read_index(self.prefix + INDEX_SUFFIX)

    @staticmethod
    def _read_index(uri: str) -> tuple[int, dict[str, TensorEntry]]:
        num_shards = None
        entries: dict[str, TensorEntry] = {}
        try:
            for key, value in read_table(storage.read_bytes(uri)):
                if key:
                    entries[key.decode()] = _parse_entry(value)
                else:
                    num_shards = _parse_header(value)
        except (CheckpointError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{uri}: {error}") from error
        if num_shards is None:
            raise CheckpointError(f"{uri} must begin with the header of a checkpoint, got none")
        return num_shards, entries

    def shard_uri(self, shard: int) -> str:
        """The data file of that number."""
        return f"{self.prefix}.data-{shard:05d}-of-{self.num_shards:05d}"

    def read(self, names: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Values of the named tensors, each checked against its checksum. bfloat16 comes as float32.

        Raises:
            CheckpointError: a tensor is absent, damaged, partitioned or of a type that is not read.
            StorageError: a data file cannot be read.
        """
        wanted = list(names)
        for name in wanted:
            self._check(name)
        arrays = {}
        by_shard: dict[int, list[str]] = {}
        for name in sorted(wanted, key=lambda name: self.entries[name].offset):
            by_shard.setdefault(self.entries[name].shard, []).append(name)
        for shard, members in by_shard.items():
            uri = self.shard_uri(shard)
            with storage.open_input(uri) as stream:
                data_file = _Forward(stream)
                for name in members:
                    arrays[name] = self._read_one(data_file, name, uri)
        return {name: arrays[name] for name in wanted}

    def _check(self, name: str) -> None:
        entry = self.entries.get(name)
        if entry is None:
            raise CheckpointError(f"{self.prefix} must hold the tensor {name}, got {len(self.entries)} others")
        if entry.is_partitioned:
            raise CheckpointError(f"{self.prefix}: {name} must lie in one piece, got a partitioned variable")
        if entry.dtype not in _DTYPES:
            raise CheckpointError(
                f"{self.prefix}: {name} must be float32, float16, bfloat16, int32 or int64, "
                f"got TensorFlow's type number {entry.dtype}"
            )
        size = prod(entry.shape) * np.dtype(_DTYPES[entry.dtype]).itemsize
        if size != entry.size_bytes:
            raise CheckpointError(
                f"{self.prefix}: {name} of shape {entry.shape} must have {size} bytes, got {entry.size_bytes}"
            )
        if entry.shard >= self.num_shards:
            raise CheckpointError(
                f"{self.prefix}: {name} must lie in one of {self.num_shards} files, got {entry.shard}"
            )

    def _read_one(self, data_file: _Forward, name: str, uri: str) -> NDArray[Any]:
        entry = self.entries[name]
        data = data_file.read(entry.offset, entry.size_bytes)
        if len(data) < entry.size_bytes:
            raise CheckpointError(f"{uri} must hold {entry.size_bytes} bytes of {name}, got {len(data)}: it is cut off")
        if masked(crc32c(data)) != entry.checksum:
            raise CheckpointError(f"{uri}: {name} must have the checksum in the index: the file is damaged")
        values = np.frombuffer(data, _DTYPES[entry.dtype])
        if entry.dtype == _BFLOAT16:  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return values.reshape(entry.shape)


def _parse_header(data: bytes) -> int:
    """Number of data files."""
    fields = dict(read_message(data))
    if fields.get(2, 0) != 0:
        raise CheckpointError("a checkpoint must be little-endian, got big-endian")
    return _integer(fields, 1)


def _parse_entry(data: bytes) -> TensorEntry:
    fields: dict[int, int | bytes] = {}
    is_partitioned = False
    for number, value in read_message(data):
        is_partitioned |= number == 7
        fields[number] = value
    shape = fields.get(2, b"")
    assert isinstance(shape, bytes)
    sizes = [dict(read_message(dim)) for number, dim in read_message(shape) if number == 2 and isinstance(dim, bytes)]
    return TensorEntry(
        dtype=_integer(fields, 1),
        shape=tuple(_integer(size, 1) for size in sizes),
        shard=_integer(fields, 3),
        offset=_integer(fields, 4),
        size_bytes=_integer(fields, 5),
        checksum=_integer(fields, 6),
        is_partitioned=is_partitioned,
    )


def _integer(fields: Mapping[int, int | bytes], number: int) -> int:
    """A field of a message; absent means 0, as everywhere in protocol buffers."""
    value = fields.get(number, 0)
    if not isinstance(value, int):
        raise CheckpointError(f"field {number} must be an integer, got {len(value)} bytes")
    return value
