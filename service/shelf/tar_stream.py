"""A tar archive as it is read, in a memory that does not grow with it. Pure but for the reading."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import IO

CHUNK_BYTES = 1 << 20
_BLOCK = tarfile.BLOCKSIZE


class ChangedWhileReadError(Exception):
    """A file is no longer as long as it was: the archive that has begun cannot be ended well."""


@dataclass(frozen=True)
class Member:
    """One file of an archive."""

    name: str
    """Path in the archive."""
    size_bytes: int
    open: Callable[[], IO[bytes]]


def tar_size(members: Sequence[Member]) -> int:
    """Bytes of the archive, known before anything is read."""
    headers = sum(len(_header(member)) for member in members)
    return headers + sum(_padded(member.size_bytes) for member in members) + 2 * _BLOCK


def stream_tar(members: Sequence[Member]) -> Generator[bytes]:
    """The archive in pieces of `CHUNK_BYTES` at most; the same bytes for the same files.

    Raises:
        ChangedWhileReadError: a file is shorter or longer than its member says.
        StorageError: a file cannot be read.
    """
    for member in members:
        yield _header(member)
        left = member.size_bytes
        with member.open() as stream:
            while left:
                chunk = stream.read(min(left, CHUNK_BYTES))
                if not chunk:
                    raise ChangedWhileReadError(f"{member.name} ended {left} bytes early")
                left -= len(chunk)
                yield chunk
            if stream.read(1):
                raise ChangedWhileReadError(f"{member.name} is longer than {member.size_bytes} bytes")
        if padding := _padded(member.size_bytes) - member.size_bytes:
            yield bytes(padding)
    yield bytes(2 * _BLOCK)


def _header(member: Member) -> bytes:
    info = tarfile.TarInfo(member.name)
    info.size = member.size_bytes
    info.mode = 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
