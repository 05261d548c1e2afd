"""URIs in the one form in which they can be compared, and which lies below which. It follows links of local disks."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

PROJECT_FIELD = "{project}"
_WILD = re.compile(r"[*?\[]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
WEB = ("http", "https")
STORES = ("s3", "gs")


def canonical(uri: str) -> str:
    """A URI with its scheme in small letters, or the local path it means with all links followed.

    What pipelines would read otherwise than it looks is refused rather than mended.

    Raises:
        ValueError: it is relative, holds `..`, a control character or an unknown scheme; the message ends the sentence
            "the place …".
    """
    if _CONTROL.search(uri):
        raise ValueError("must not hold control characters")
    scheme, path = _parts(uri)
    if ".." in re.split(r"[/\\]", path):
        raise ValueError("must not hold '..'")
    if not scheme:
        if not path.startswith("/"):
            raise ValueError("must be a path from the root or a URI")
        return os.path.realpath(path)
    if scheme in STORES:
        return f"{scheme}://{path.rstrip('/')}"
    return f"{scheme}://{path}"


def scheme_of(uri: str) -> str:
    """`s3`, `gs`, `http`, `https`, or nothing for a local path."""
    scheme = uri.partition("://")[0].lower() if "://" in uri and "/" not in uri.partition("://")[0] else ""
    return "" if scheme == "file" else scheme


def _parts(uri: str) -> tuple[str, str]:
    """Scheme and what follows it; of `file://` the path, decoded as it will be when it is opened."""
    scheme = scheme_of(uri)
    if scheme in WEB:
        decoded = unquote(urlsplit(uri).path)
        if ".." in re.split(r"[/\\]", decoded):
            raise ValueError("must not hold '..', in any writing of it")
        return scheme, uri.partition("://")[2]
    if scheme in STORES:
        return scheme, uri.partition("://")[2]
    if scheme:
        raise ValueError(f"must have a scheme of file, s3, gs, http or https, got {scheme!r}")
    if uri.lower().startswith("file:") and "://" in uri:
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost"):
            raise ValueError("must not name a host in a file URI")
        path = unquote(uri.partition("://")[2].removeprefix("localhost"))
        if _CONTROL.search(path):
            raise ValueError("must not hold control characters")
        return "", path
    return "", uri


def static_part(place: str) -> str:
    """Of a pattern the directory above its first wildcard; else the place itself."""
    wild = _WILD.search(place) if scheme_of(place) not in WEB else None
    return place if wild is None else place[: place.rfind("/", 0, wild.start())] or "/"


def is_within(inner: str, outer: str) -> bool:
    """Whether a canonical place is another or lies below it, by whole names."""
    outer = outer.rstrip("/")
    return inner.rstrip("/") == outer or inner.startswith(f"{outer}/")


def own_place(uri: str) -> str:
    """A place of the service's own settings, which may be relative."""
    return canonical(os.path.abspath(uri) if not scheme_of(uri) and ":" not in uri.partition("/")[0] else uri)  # noqa: PTH100


def check_root(root: str, own: tuple[str, ...]) -> None:
    """Refuse a root that is no place, or that lies in a place of the service's own.

    Raises:
        ValueError: with the rule and the root.
    """
    try:
        place = canonical(root.replace(PROJECT_FIELD, "x"))
    except ValueError as error:
        raise ValueError(f"the place {error}, got {root!r}") from error
    if _WILD.search(root):
        raise ValueError(f"must be places and no patterns, got {root!r}")
    if scheme_of(root) in WEB:
        raise ValueError(
            f"must be local paths, s3:// or gs://; the web is open but for ELECTRA_WEB_SOURCE_HOSTS, got {root!r}"
        )
    if any(one and is_within(place, own_place(one)) for one in own):
        raise ValueError(
            f"must not lie in ELECTRA_HOME or ELECTRA_STORAGE_URI, where jobs of all projects are, got {root!r}"
        )
