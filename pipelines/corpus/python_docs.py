"""The documentation inside installed Python packages: docstrings, package descriptions, .rst and .md files.

Source code is parsed, never imported or run.
"""

from __future__ import annotations

import ast
import csv
import gc
import inspect
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from pipelines.errors import CorpusError
from pipelines.storage import FoundFile

_TEST_FOLDERS = frozenset({"test", "tests", "_tests", "idle_test", "__pycache__", "site-packages", "dist-packages"})
_SUFFIXES = (".py", ".rst", ".md")
_LONGEST_FILE_BYTES = 4 << 20
"""Longer files are tables that a program wrote."""


def list_files(packages: tuple[str, ...] | None, include_standard_library: bool) -> tuple[FoundFile, ...]:
    """Files with documentation, by distribution name and path; identities are free of where they are installed.

    Raises:
        CorpusError: a named package is not installed.
    """
    installed: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        installed.setdefault(_canonical(distribution.name), distribution)  # the first on the path wins, as in imports
    wanted = sorted(installed) if packages is None else sorted({_canonical(name) for name in packages})
    absent = [name for name in wanted if name not in installed]
    if absent:
        raise CorpusError(
            f"packages of python_docs must be installed where the job runs; {', '.join(absent)} is not; "
            "install it or take it off the list"
        )
    files = [file for name in wanted for file in _distribution_files(name, installed[name])]
    if include_standard_library:
        files.extend(_standard_library_files())
    return tuple(files)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _distribution_files(name: str, distribution: metadata.Distribution) -> Iterator[FoundFile]:
    # Read here and not through `distribution.files`, which makes an object of each of 80 000 names.
    version = distribution.version  # parses the package's description each time it is asked
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    for row in sorted(row for row in rows if len(row) == 3 and _may_document(row[0])):
        path = Path(str(distribution.locate_file(row[0])))
        size = int(row[2]) if row[2].isdigit() else _size(path)
        if 0 < size <= _LONGEST_FILE_BYTES:
            yield FoundFile(str(path), size, f"{name}=={version}/{row[0]}")


def _may_document(name: str) -> bool:
    if name.endswith(_SUFFIXES):
        return not _TEST_FOLDERS.intersection(name.split("/"))
    return name.endswith(".dist-info/METADATA")


def _standard_library_files() -> Iterator[FoundFile]:
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        size = _size(path)
        if not _TEST_FOLDERS.intersection(relative.parts) and 0 < size <= _LONGEST_FILE_BYTES:
            yield FoundFile(str(path), size, f"python=={platform.python_version()}/{relative.as_posix()}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read_documents(files: tuple[str, ...]) -> Iterator[str]:
    """One document a file; files without documentation, or that Python cannot parse, give none."""
    was_enabled = gc.isenabled()
    gc.disable()  # syntax trees hold no cycles, and looking for some takes a third of the time
    try:
        for name in files:
            text = _document(Path(name))
            if text:
                yield text
    finally:
        if was_enabled:
            gc.enable()


def _document(path: Path) -> str:
    try:
        data = path.read_bytes()
        if path.suffix == ".py":
            return docstrings(data)
        text = data.decode("utf-8")
    except (OSError, ValueError):
        return ""
    if path.name == "METADATA":
        _, _, text = text.replace("\r\n", "\n").partition("\n\n")  # the headers end at the first empty line
    return text


def docstrings(source: bytes) -> str:
    """All docstrings of a module in order of appearance, dedented, with an empty line between them."""
    if b'"""' not in source and b"'''" not in source:
        return ""  # the rare docstring in single quotes is not worth parsing every file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes the authors did not mean
            tree = ast.parse(source)
        return "\n\n".join(_docstrings(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _docstrings(node: ast.AST) -> Iterator[str]:
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            text = inspect.cleandoc(first.value.value)
            if text:
                yield text
    for part in ("body", "handlers", "orelse", "finalbody"):
        for child in getattr(node, part, ()):
            yield from _docstrings(child)
