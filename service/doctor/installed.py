"""Python, packages and the machine itself."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from service.doctor.findings import Finding, Status

PACKAGE = "electra-pretraining"
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_EXTRAS = ("", "service", "training")
_TORCH_SECONDS = 120.0
_LEAST_MEMORY_BYTES = 4 * 2**30
_TORCH_PROGRAM = (
    "import json, torch; cuda = torch.cuda.is_available(); "
    "names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else []; "
    "print(json.dumps({'version': torch.__version__, 'cuda': torch.version.cuda, 'devices': names}))"
)


def check_python() -> Iterator[Finding]:
    """The Python that runs this."""
    version = ".".join(map(str, sys.version_info[:3]))
    wanted = metadata.metadata(PACKAGE)["Requires-Python"] or ""
    if not _fits(version, wanted):
        yield Finding("python", Status.FAIL, f"{version}, needs {wanted}", "Make an environment with that Python.")
        return
    yield Finding("python", Status.OK, f"{version} at {sys.executable}")


def check_packages() -> Iterator[Finding]:
    """What is installed, against what the package asks for. A whole extra may be absent: not every machine trains."""
    wanted: dict[str, list[tuple[str, str]]] = {extra: [] for extra in _EXTRAS}
    for line in metadata.requires(PACKAGE) or ():
        requirement, _, marker = line.partition(";")
        named = _EXTRA.search(marker)
        extra = named[1] if named else ""
        parsed = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(.*)", requirement.strip())
        if extra in wanted and parsed is not None and parsed[1] != PACKAGE:
            wanted[extra].append((parsed[1], parsed[2]))
    for extra, requirements in wanted.items():
        yield _of_extra(extra, requirements)


def _of_extra(extra: str, requirements: list[tuple[str, str]]) -> Finding:
    name = f"packages ({extra})" if extra else "packages"
    install = f"pip install '{PACKAGE}[{extra}]'" if extra else f"pip install {PACKAGE}"
    found = {package: _version_of(package) for package, _ in requirements}
    absent = [package for package, version in found.items() if version is None]
    if absent and extra:
        # Some of it may be there for another extra's sake.
        detail = f"not installed: {', '.join(absent)}"
        return Finding(name, Status.WARN, detail, f"Where this machine is to do that work:  {install}")
    wrong = [
        f"{package} {found[package]}, needs {wanted}"
        for package, wanted in requirements
        if found[package] is not None and not _fits(str(found[package]), wanted)
    ]
    if absent or wrong:
        return Finding(name, Status.FAIL, "; ".join([*(f"{one} is absent" for one in absent), *wrong]), install)
    return Finding(name, Status.OK, f"{len(requirements)} as they should be")


def check_machine() -> Iterator[Finding]:
    """Cores, memory and what torch was built for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    detail = f"{cores} cores, {memory / 2**30:.1f} GiB of memory"
    if memory < _LEAST_MEMORY_BYTES:
        advice = "Ray, MLflow and a small job need some 4 GiB: use a larger machine, or a remote service by --url."
        yield Finding("machine", Status.WARN, detail, advice)
    else:
        yield Finding("machine", Status.OK, detail)
    yield _torch()


def _torch() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("torch", Status.WARN, "not installed: this machine does not train", "")
    # In a process of its own: importing it takes seconds, and a broken driver may take the process with it.
    try:
        asked = [sys.executable, "-P", "-c", _TORCH_PROGRAM]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_TORCH_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return Finding("torch", Status.FAIL, f"no answer within {_TORCH_SECONDS:g} s", "Look at the GPU's driver.")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        return Finding("torch", Status.FAIL, f"cannot be imported: {last[:300]}", "Install torch again.")
    told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    built = f"for CUDA {told['cuda']}" if told["cuda"] else "for CPUs"
    if told["devices"]:
        return Finding("torch", Status.OK, f"{told['version']}, {built}: {', '.join(told['devices'])}")
    has_gpu = shutil.which("nvidia-smi") is not None
    if has_gpu:
        advice = "Install a build of torch for its driver's CUDA." if not told["cuda"] else "Look at the GPU's driver."
        return Finding(
            "torch", Status.WARN, f"{told['version']}, {built}, sees no GPU, but there is nvidia-smi", advice
        )
    return Finding("torch", Status.OK, f"{told['version']}, {built}; no GPU")


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _fits(version: str, wanted: str) -> bool:
    """Whether a version is one of those that `>=1,<2` and the like allow."""
    parts = [re.match(r"\s*(>=|<=|==|!=|<|>)\s*([0-9.]+)", part) for part in wanted.split(",") if part.strip()]
    has = _numbers(version)
    for part in parts:
        if part is None:
            continue  # a form that we do not use: pip has checked it
        limit = _numbers(part[2])
        own, other = _padded(has, limit)
        holds = {">=": own >= other, "<=": own <= other, "==": own == other, "!=": own != other}
        if not (holds | {"<": own < other, ">": own > other})[part[1]]:
            return False
    return True


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", re.split(r"[^0-9.]", version)[0])]


def _padded(one: list[int], other: list[int]) -> tuple[list[int], list[int]]:
    length = max(len(one), len(other))
    return one + [0] * (length - len(one)), other + [0] * (length - len(other))
