"""Compiling the CPU kernels of `electra_core.native` on the machine that will run them, once, where it can be done.

A C++ compiler is not asked for: without one training goes on with torch's own kernels, more slowly. What was compiled
is kept in the user's cache directory under a digest of the sources, the compiler and the processor, so that homes
shared by unlike machines do no harm.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from electra_core.native.library import SOURCES, NativeLibrary

log = logging.getLogger(__name__)

SWITCH = "ELECTRA_CPU_KERNELS"
"""Environment variable: `torch` leaves the compiled kernels out."""
COMPILE_TIMEOUT_SECONDS = 180.0
_COMPILERS = ("c++", "g++", "clang++")
# Contracting a·b + c to one instruction is wanted; nothing of fast-math, which reorders sums and denies infinities.
_FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-fPIC", "-shared", "-w")
_TUNING = (("-march=native", "-fopenmp"), ("-mcpu=native", "-fopenmp"), ("-march=native",), ())
"""Tried in order: not every compiler knows each."""


def build_native_library() -> NativeLibrary | None:
    """The compiled kernels, from the cache or made now; None where that cannot be done. The reason is logged."""
    if os.environ.get(SWITCH, "").lower() == "torch":
        return None
    compiler = _compiler()
    if compiler is None:
        log.info("no_native_kernels", extra={"reason": f"no C++ compiler: none of CXX, {', '.join(_COMPILERS)}"})
        return None
    try:
        path = _cache_directory() / f"kernels-{_digest(compiler)}.so"
        if path.exists():
            with contextlib.suppress(OSError, AttributeError):  # cut short by a full disk, say: made anew
                return NativeLibrary(path)
        _compile(compiler, path)
        return NativeLibrary(path)
    except (OSError, AttributeError, RuntimeError, subprocess.SubprocessError) as error:
        log.warning("no_native_kernels", extra={"reason": f"{type(error).__name__}: {error}"})
        return None


def _compiler() -> str | None:
    for name in (os.environ.get("CXX", ""), *_COMPILERS):
        found = shutil.which(name) if name else None
        if found is not None:
            return found
    return None


def _cache_directory() -> Path:
    """Of this user alone: what lies there is loaded as code."""
    candidates = [Path(tempfile.gettempdir()) / f"electra-pretraining-{os.getuid()}"]
    with contextlib.suppress(RuntimeError):  # a user without a home
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        candidates.insert(0, home / "electra-pretraining")
    for directory in candidates:
        with contextlib.suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = directory.stat()
            is_ours = status.st_uid == os.getuid() and not status.st_mode & 0o022
            if is_ours and os.access(directory, os.W_OK):
                return directory
    raise RuntimeError(f"none of {', '.join(map(str, candidates))} is a directory that only this user can write to")


def _digest(compiler: str) -> str:
    version = subprocess.run(  # noqa: S603 - a compiler found on the user's own PATH
        [compiler, "--version"], capture_output=True, check=True, timeout=COMPILE_TIMEOUT_SECONDS
    ).stdout
    parts = [version, _processor().encode(), repr((_FLAGS, _TUNING)).encode()]
    parts += [source.read_bytes() for source in SOURCES]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _processor() -> str:
    """What decides which instructions `native` means."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _compile(compiler: str, path: Path) -> None:
    """Compile beside `path` and move it there: two workers may do so at once."""
    handle, unfinished = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(handle)
    try:
        for tuning in _TUNING:
            command = [compiler, *_FLAGS, *tuning, str(SOURCES[0]), "-o", unfinished]
            result = subprocess.run(  # noqa: S603 - our own sources, the user's own compiler
                command, capture_output=True, check=False, timeout=COMPILE_TIMEOUT_SECONDS
            )
            complaint = result.stderr.decode(errors="replace").strip()[-2000:]
            if result.returncode == 0:
                try:
                    NativeLibrary(Path(unfinished))
                except (OSError, AttributeError) as error:  # linked against what cannot be found here
                    complaint = str(error)
                    continue
                Path(unfinished).replace(path)
                log.info("native_kernels_compiled", extra={"path": str(path), "command": " ".join(command)})
                return
        raise subprocess.SubprocessError(f"{' '.join(command)} failed: {complaint}")
    finally:
        Path(unfinished).unlink(missing_ok=True)
