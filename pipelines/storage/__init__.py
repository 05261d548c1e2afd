"""Files behind URIs: one set of functions for local paths, `s3://`, `gs://` and, read-only, `http(s)://`.

A path without a scheme is local and taken letter by letter; `file://` URIs are percent-decoded, as `Path.as_uri`
encodes them. Object keys are taken letter by letter too, as the vendors' own tools do. Writes are atomic: a reader
sees the old content, the new content or nothing. Object stores are reached with short time-outs and few retries, so
that a wrong address fails in seconds.

Credentials and endpoint of S3 come from the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
`AWS_SESSION_TOKEN`, `AWS_PROFILE`, `AWS_REGION`, `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`; of Google's from its
application default credentials, with `STORAGE_EMULATOR_HOST` for an emulator.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from pipelines.errors import StorageError
from pipelines.storage.remote import HTTP_SCHEMES, RemoteInput, as_storage_error, http_filesystem, object_store, telling
from pipelines.storage.wildcards import has_wildcards, matcher, static_prefix

__all__ = [
    "FoundFile",
    "StorageError",
    "delete_tree",
    "download_tree",
    "exists",
    "expand",
    "is_local",
    "join",
    "list_directory",
    "local_path",
    "normalise",
    "open_input",
    "open_output",
    "read_bytes",
    "read_json",
    "read_parsed",
    "upload_tree",
    "write_bytes",
    "write_json",
]

_COPY_BYTES = 8 << 20
_SPOOL_BYTES = 128 << 20
"""Larger uploads wait on the local disk until they are complete."""
_TORN_READS = 3
_T = TypeVar("_T")


class FoundFile(NamedTuple):
    """A file that exists."""

    uri: str
    size_bytes: int
    """-1 where the server does not say."""
    identity: str
    """Changes when the content does: modification time and size, or the server's ETag."""


def normalise(uri: str) -> str:
    """The URI with local paths made absolute, and `file://` resolved to a plain path.

    Raises:
        StorageError: the scheme is unknown, or a `file://` URI names another host.
    """
    path = local_path(uri)
    if path is not None:
        return str(path)
    scheme = _scheme(uri)
    if scheme not in ("s3", "gs", *HTTP_SCHEMES):
        raise StorageError(uri, f"the scheme must be file, s3, gs, http or https, got {scheme!r}")
    return uri if scheme in HTTP_SCHEMES else f"{scheme}://{uri.partition('://')[2].rstrip('/')}"


def local_path(uri: str) -> Path | None:
    """The absolute local path of a URI, or None where it is remote."""
    scheme = _scheme(uri)
    if scheme == "file":
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost"):
            raise StorageError(uri, f"a file URI must not name a host, got {parts.netloc!r}; write file:///path")
        # urlsplit would take '?' and '#' away, which are letters of a file name here.
        return Path(unquote(uri.removeprefix("file://").removeprefix("localhost")))
    if scheme:
        return None
    path = Path(uri).expanduser() if uri.startswith("~/") else Path(uri)
    return Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links, and names would change


def is_local(uri: str) -> bool:
    """Whether the URI is a path of this machine."""
    return local_path(uri) is not None


def join(uri: str, *parts: str) -> str:
    """The URI of something below `uri`, which is normalised."""
    return "/".join([normalise(uri).rstrip("/"), *(part.strip("/") for part in parts)])


def exists(uri: str) -> bool:
    """Whether a file, or a directory with something in it, is there."""
    path = local_path(uri)
    if path is not None:
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise as_storage_error(uri, error) from error
        return True
    with telling(uri):
        if _scheme(uri) in HTTP_SCHEMES:
            return bool(http_filesystem().exists(uri))
        filesystem, key = object_store(uri)
        return _kind(filesystem, key) != "NotFound"


def open_input(uri: str) -> IO[bytes]:
    """A buffered stream of a file's bytes. Local files and object stores can seek; http cannot be relied on to."""
    path = local_path(uri)
    with telling(uri):
        if path is not None:
            return path.open("rb")
        if _scheme(uri) in HTTP_SCHEMES:
            return RemoteInput(uri, http_filesystem().open(uri, "rb", cache_type="readahead", block_size=_COPY_BYTES))
        filesystem, key = object_store(uri)
        return RemoteInput(uri, filesystem.open_input_file(key))


def read_bytes(uri: str) -> bytes:
    """A whole file."""
    with open_input(uri) as stream, telling(uri):
        return stream.read()


def read_parsed(uri: str, parse: Callable[[bytes], _T]) -> _T:
    """What `parse` makes of a whole file that others may replace meanwhile.

    From an object store a file is read by two requests, the first of which asks for its length: of one that is replaced
    between them comes a part, or more than all. What makes no sense is therefore read again.

    Args:
        uri: of the file.
        parse: raises ValueError where the bytes make no sense.

    Raises:
        ValueError: they never made any.
        StorageError: the file cannot be read.
    """
    for _ in range(0 if is_local(uri) else _TORN_READS):
        with suppress(ValueError):
            return parse(read_bytes(uri))
    return parse(read_bytes(uri))


def read_json(uri: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = read_parsed(uri, json.loads)
    except ValueError as error:
        raise StorageError(uri, f"must be JSON, but {error}") from error
    if not isinstance(value, dict):
        raise StorageError(uri, f"must hold a JSON object, got {type(value).__name__}")
    return value


@contextmanager
def open_output(uri: str) -> Iterator[IO[bytes]]:
    """A stream that becomes the file at `uri` when the block ends well, and nothing when it raises."""
    path = local_path(uri)
    if path is not None:
        with telling(uri), _local_output(path) as stream:
            yield stream
        return
    if _scheme(uri) in HTTP_SCHEMES:
        raise StorageError(uri, "http addresses are read-only")
    # An upload that was begun cannot be called off through pyarrow, so it begins when the content is complete.
    with telling(uri), tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as spool:
        yield spool
        spool.seek(0)
        filesystem, key = object_store(uri)
        with filesystem.open_output_stream(key) as remote:
            shutil.copyfileobj(spool, remote, _COPY_BYTES)


@contextmanager
def _local_output(path: Path) -> Iterator[IO[bytes]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with unfinished.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_bytes(uri: str, data: bytes) -> None:
    """Write a whole file, atomically; directories above it are made."""
    with open_output(uri) as stream:
        stream.write(data)


def write_json(uri: str, value: Mapping[str, Any]) -> None:
    """Write a JSON object, atomically, with sorted keys."""
    write_bytes(uri, (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode())


def expand(uri: str) -> list[FoundFile]:
    """The files that a file, directory or glob names, in order of their URIs.

    A directory is read recursively; names that start with a dot or an underscore are passed over in it, as Hadoop
    and Spark do. In a glob, `*`, `?` and `[]` stay inside one name and `**` crosses directories. A file whose own
    name is the pattern is that file.

    Raises:
        StorageError: there is nothing there, or it cannot be listed.
    """
    where = normalise(uri)
    if _scheme(where) in HTTP_SCHEMES:
        return [_http_file(where)]
    found = [_file(where, info) for info in _infos(where)]
    if found or not has_wildcards(where):
        if not found:
            raise StorageError(uri, "the directory holds no files")
        return sorted(found)
    matches = matcher(where)
    base = static_prefix(where)
    if exists(base):
        found = [_file(base, info) for info in _infos(base, hidden=True) if matches(_uri_of(base, info))]
    if not found:
        raise StorageError(uri, "no file matches this pattern")
    return sorted(found)


def list_directory(uri: str) -> list[str]:
    """URIs of what lies directly in a directory, sorted; empty where there is no such directory."""
    path = local_path(uri)
    with telling(uri):
        if path is not None:
            return sorted(str(entry) for entry in path.iterdir()) if path.is_dir() else []
        from pyarrow import fs

        filesystem, key = object_store(uri)
        infos = filesystem.get_file_info(fs.FileSelector(key, allow_not_found=True))
        return sorted(_uri_of(uri, info) for info in infos)


def delete_tree(uri: str) -> None:
    """Delete a file or a directory with everything in it; nothing happens where there is none."""
    path = local_path(uri)
    with telling(uri):
        if path is not None:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            return
        filesystem, key = object_store(uri)
        kind = _kind(filesystem, key)
        if kind == "Directory":
            filesystem.delete_dir(key)
        elif kind == "File":
            filesystem.delete_file(key)


def upload_tree(local_dir: str | Path, uri: str) -> None:
    """Copy a local directory's files below `uri`, in order of their names."""
    root = Path(local_dir)
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        with path.open("rb") as source, open_output(join(uri, path.relative_to(root).as_posix())) as target:
            shutil.copyfileobj(source, target, _COPY_BYTES)


def download_tree(uri: str, local_dir: Path) -> Path:
    """Copy the files directly in a directory into a new local one."""
    local_dir.mkdir(parents=True)
    for file in expand(uri):
        (local_dir / file.uri.rpartition("/")[2]).write_bytes(read_bytes(file.uri))
    return local_dir


def _kind(filesystem: Any, key: str) -> str:
    """`File`, `Directory` or `NotFound`."""
    return str(filesystem.get_file_info(key).type.name)


def _scheme(uri: str) -> str:
    scheme, separator, _ = uri.partition("://")
    return scheme.lower() if separator and "/" not in scheme else ""


def _infos(uri: str, *, hidden: bool = False) -> list[Any]:
    """Files at or below `uri`, as pyarrow describes them; empty for a pattern that is no file itself."""
    from pyarrow import fs

    path = local_path(uri)
    with telling(uri):
        filesystem, key = (fs.LocalFileSystem(), str(path)) if path is not None else object_store(uri)
        info = filesystem.get_file_info(key)
        if info.type == fs.FileType.File:
            return [info]
        if info.type == fs.FileType.NotFound:
            if has_wildcards(uri):
                return []
            raise StorageError(uri, "there is no such file or directory")
        infos = filesystem.get_file_info(fs.FileSelector(key, recursive=True))
    below = len(info.path.rstrip("/")) + 1
    return [
        info
        for info in infos
        if info.type == fs.FileType.File
        and (hidden or not any(name.startswith((".", "_")) for name in info.path[below:].split("/")))
    ]


def _uri_of(base: str, info: Any) -> str:
    scheme = _scheme(base)
    return f"{scheme}://{info.path}" if scheme in ("s3", "gs") else str(info.path)


def _file(base: str, info: Any) -> FoundFile:
    if not is_local(base) or os.access(info.path, os.R_OK):
        return FoundFile(_uri_of(base, info), int(info.size), f"{info.mtime_ns}-{info.size}")
    raise StorageError(info.path, "access is denied")


def _http_file(uri: str) -> FoundFile:
    with telling(uri):
        info = http_filesystem().info(uri)
    size = info.get("size")
    tag = info.get("ETag") or info.get("Last-Modified") or "unknown"
    return FoundFile(uri, -1 if size is None else int(size), f"{tag}-{size}")
