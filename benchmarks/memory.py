"""Peak memory: of this process as the kernel remembers it, and of a family of processes as sampled."""

from __future__ import annotations

import resource
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_SAMPLE_SECONDS = 0.2


def peak_rss_bytes() -> int:
    """Largest resident set of this process since it started its program, pages mapped from files included."""
    kilobytes = _status("self").get("VmHWM")
    if kilobytes is None:  # not Linux
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * kilobytes


def anonymous_bytes(process: int) -> int:
    """Resident memory that belongs to the process alone: neither mapped from files nor shared; 0 where unknown."""
    return 1024 * _status(process).get("RssAnon", 0)


def resident_bytes(process: int) -> int:
    """Resident memory of a process, pages that it shares with others included; 0 where unknown."""
    return 1024 * _status(process).get("VmRSS", 0)


class PeakOfFamily:
    """Samples the anonymous memory of a process and all below it, summed, while the context is open."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closing.wait(_SAMPLE_SECONDS):
            self.peak_bytes = max(self.peak_bytes, sum(anonymous_bytes(process) for process in _family(self._root)))


def _family(root: int) -> list[int]:
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        parent = _status(folder.name).get("PPid")
        if parent is not None:
            parents[int(folder.name)] = parent
    family = [root]
    for process in family:  # grows while it is read
        family.extend(child for child, parent in parents.items() if parent == process)
    return family


def _status(process: int | str) -> dict[str, int]:
    """The lines of /proc that hold a number; none where the process is gone, or there is no /proc."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    words = {key: value.split() for key, _, value in pairs}
    return {key: int(value[0]) for key, value in words.items() if value and value[0].isdigit()}
