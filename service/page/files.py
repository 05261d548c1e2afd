"""The page as it lies in this package: plain HTML, CSS and ES modules, read once. Pure but for that reading."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

INDEX = "index.html"
_STATIC = files("service.page") / "static"
_VERSION_MARK = b"{version}"
_VERSION_CHARACTERS = 16
MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""By ending: what a file of the page may be. With `nosniff` a browser takes no script that is called otherwise."""


@dataclass(frozen=True)
class PageFile:
    """One file of the page."""

    content: bytes
    media_type: str
    etag: str
    """Of the content, as the header has it."""


@dataclass(frozen=True)
class PageFiles:
    """All files of the page."""

    version: str
    """Of the content of all together. It stands in the addresses of all but the first, which may then be kept for good:
    modules import each other by relative names, so all of them are of one version.
    """
    by_name: Mapping[str, PageFile]


def read_page() -> PageFiles:
    """Read the page.

    Raises:
        ValueError: a file has an ending that the page does not serve.
    """
    contents = {one.name: one.read_bytes() for one in _STATIC.iterdir() if one.is_file()}
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(f"{name}\0{len(contents[name])}\0".encode() + contents[name])
    version = digest.hexdigest()[:_VERSION_CHARACTERS]
    contents[INDEX] = contents[INDEX].replace(_VERSION_MARK, version.encode())
    return PageFiles(version, {name: _page_file(name, content) for name, content in contents.items()})


def _page_file(name: str, content: bytes) -> PageFile:
    ending = name[name.rfind(".") :]
    if ending not in MEDIA_TYPES:
        raise ValueError(f"a file of the page must end in one of {', '.join(MEDIA_TYPES)}, got {name!r}")
    return PageFile(content, MEDIA_TYPES[ending], f'"{hashlib.sha256(content).hexdigest()[:_VERSION_CHARACTERS]}"')
