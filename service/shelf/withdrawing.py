"""Deleting what somebody may begin to use at the same moment.

The file that makes an artifact complete is taken away first, so that what is half deleted is never taken for whole.
Then it is asked once more whether anybody needs it: whoever says so before they look either finds nothing complete, or
is seen here, and the file is put back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from pipelines import storage


class StillNeededError(Exception):
    """Somebody began to need it in the meantime; all is as it was. The message says who."""


def withdraw(uri: str, markers: Iterable[str], others: Iterable[str] | None, need: Callable[[], str | None]) -> None:
    """Delete an artifact.

    Args:
        uri: its folder.
        markers: paths of the files that make it complete, from the folder on; those that are not there are passed
            over.
        others: paths of all else that goes; None for the whole folder.
        need: why it has to stay, asked when the markers are gone; None where nobody needs it.

    Raises:
        StillNeededError: it has to stay.
        StorageError: the storage does not answer. What is left is not complete, and can be deleted another time.
    """
    there = [marker for marker in markers if storage.exists(storage.join(uri, marker))]
    kept = {marker: _read(storage.join(uri, marker)) for marker in there}
    try:
        for marker in kept:
            storage.delete_tree(storage.join(uri, marker))
        reason = need()
    except BaseException:
        _put_back(uri, kept)
        raise
    if reason is not None:
        _put_back(uri, kept)
        raise StillNeededError(reason)
    if others is None:
        storage.delete_tree(uri)
        return
    for path in others:
        storage.delete_tree(storage.join(uri, path))


def _read(uri: str) -> tuple[bytes, int | None]:
    path = storage.local_path(uri)
    return storage.read_bytes(uri), None if path is None else path.stat().st_mtime_ns


def _put_back(uri: str, kept: dict[str, tuple[bytes, int | None]]) -> None:
    """As it was: by the age of these files it is told how long ago something was made. An object store knows no age but
    that of the last writing; what is put back there seems newer, and so stays longer.
    """
    for marker, (content, modified_ns) in kept.items():
        place = storage.join(uri, marker)
        storage.write_bytes(place, content)
        path = storage.local_path(place)
        if path is not None and modified_ns is not None:
            os.utime(path, ns=(modified_ns, modified_ns))
