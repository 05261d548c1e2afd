"""A folder for the files of one prediction, which is gone afterwards, even after a process that was killed."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

LEFT_BEHIND_SECONDS = 2 * 3600.0
"""No prediction may take an hour: a folder of this age is nobody's any more."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder, deleted when the block ends. Those that killed processes left here are deleted before."""
    parent = _parent()
    if parent is not None:
        _delete_left_behind(parent)
    with tempfile.TemporaryDirectory(prefix="electra-", dir=parent) as folder:
        yield Path(folder)


def _parent() -> Path | None:
    """The folder of this user's predictions on this machine; None where the name is taken by somebody else, who could
    exchange files in it.
    """
    parent = Path(tempfile.gettempdir()) / f"electra-predict-{os.getuid()}"
    try:
        parent.mkdir(mode=0o700, exist_ok=True)
        found = parent.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return parent if is_ours else None


def _delete_left_behind(parent: Path) -> None:
    oldest = time.time() - LEFT_BEHIND_SECONDS
    try:
        for folder in parent.iterdir():
            if folder.lstat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:  # another prediction may be deleting the same; no answer is lost for that
        log.info("old folders of predictions could not be deleted: %s", error)
