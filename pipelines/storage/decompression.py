"""Streams of .gz and .zst files that give all they can before they tell of damage."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import IO, Any

_INPUT_BYTES = 64 << 10
_BUFFER_BYTES = 1 << 20

SUFFIXES = (".gz", ".zst")


class DamagedError(Exception):
    """The compressed data is damaged or ends early."""


def decompressed(stored: IO[bytes], name: str) -> IO[bytes]:
    """A buffered stream of what `stored` holds: decompressed if `name` ends in .gz or .zst, else as it is.

    Reading from it raises DamagedError where the compressed data ends early or makes no sense.
    """
    lower = name.lower()
    if not lower.endswith(SUFFIXES):
        return stored
    decoder = _Gzip(stored) if lower.endswith(".gz") else _Zstandard(stored)
    return io.BufferedReader(_Steps(decoder), _BUFFER_BYTES)


class _Steps(io.RawIOBase):
    """Gives what one step of the decoder gives: a buffer filled in one go would lose it to the error behind it."""

    def __init__(self, decoder: _Gzip | _Zstandard) -> None:
        self._decoder = decoder

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._decoder.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Gzip:
    """Any number of members, one after another."""

    def __init__(self, stored: IO[bytes]) -> None:
        self._file = gzip.GzipFile(fileobj=stored)

    def read(self, size: int) -> bytes:
        try:
            return self._file.read1(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DamagedError(f"the gzip data is damaged: {error}") from error


class _Zstandard:
    """Any number of frames. The library's own stream reader takes a frame that is cut off for the end of the file."""

    def __init__(self, stored: IO[bytes]) -> None:
        import zstandard

        self._stored = stored
        self._new = zstandard.ZstdDecompressor().decompressobj
        self._error = zstandard.ZstdError
        self._frame: Any = None
        self._input = self._output = b""

    def read(self, size: int) -> bytes:
        while not self._output:
            self._input = self._input or self._stored.read(_INPUT_BYTES)
            if not self._input:
                if self._frame is not None:
                    raise DamagedError("the zstd data ends early")
                return b""
            self._step()
        taken, self._output = self._output[:size], self._output[size:]
        return taken

    def _step(self) -> None:
        self._frame = self._frame or self._new()
        try:
            self._output = self._frame.decompress(self._input)
        except self._error as error:
            raise DamagedError(f"the zstd data is damaged: {error}") from error
        self._input = b""
        if self._frame.eof:
            self._input, self._frame = self._frame.unused_data, None
