"""Kept logs on a local disk, read without following a link: jobs write these folders, and a link in them would have the
service read what only it may.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pipelines.storage import FoundFile


class LocalParts:
    """Files two levels below a folder of a storage, each where its name says that it is."""

    def __init__(self, storage: Path) -> None:
        self._given = storage
        # Where the storage is may be a link: that was its owner's choice, and no job's.
        self._root = Path(os.path.realpath(storage))

    def list_files(self, base: Path) -> list[FoundFile]:
        """Files of the folders of a folder; none where there is a link on the way.

        Raises:
            OSError: the folder cannot be read.
        """
        if not self._is_itself(base):
            return []
        found = []
        for folder in _entries(base):
            if folder.is_dir(follow_symlinks=False):
                for entry in _entries(Path(folder.path)):
                    about = _about(entry)
                    if about is not None and stat.S_ISREG(about.st_mode):
                        found.append(FoundFile(entry.path, about.st_size, f"{about.st_mtime_ns}-{about.st_size}"))
        return found

    def read(self, path: Path, max_bytes: int) -> bytes:
        """The beginning of a file; nothing of what is no file of its own, or is not there any more.

        Raises:
            OSError: it cannot be read.
        """
        try:
            # Not to wait for whoever writes into a pipe of that name.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        except OSError:
            if path.is_symlink():
                return b""
            raise
        with os.fdopen(descriptor, "rb") as file:
            # Of the file that is open, not of whatever has its name by now.
            if not stat.S_ISREG(os.fstat(descriptor).st_mode) or not self._is_itself(path, descriptor):
                return b""
            return file.read(max_bytes)

    def _is_itself(self, path: Path, descriptor: int | None = None) -> bool:
        expected = self._root / path.relative_to(self._given)
        if os.path.realpath(expected) != str(expected):
            return False
        try:
            return descriptor is None or os.path.samestat(os.fstat(descriptor), os.lstat(expected))
        except FileNotFoundError:
            return False


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _about(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # the job deletes parts in the meantime
