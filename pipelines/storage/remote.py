"""Connections to object stores and web servers, and their faults in one sentence each.

Only `pipelines.storage` uses this.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from pipelines.errors import StorageError
from pipelines.storage import web_guard

HTTP_SCHEMES = ("http", "https")

_CONNECT_SECONDS = 3
_REQUEST_SECONDS = 30
"""Also the longest silence while a file is read, so not shorter."""
_ATTEMPTS = 3
_BUFFER_BYTES = 8 << 20


def object_store(uri: str) -> tuple[Any, str]:
    """The pyarrow filesystem of an `s3://` or `gs://` URI, and the path inside it: `bucket/key`."""
    scheme, _, path = uri.partition("://")
    path = path.rstrip("/")
    if not path.split("/")[0]:
        raise StorageError(uri, "the URI must name a bucket")
    if scheme.lower() == "s3":
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
        secrets = tuple(os.environ.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_PROFILE"))
        return _s3(endpoint, region, secrets), path
    if scheme.lower() == "gs":
        return _gcs(os.environ.get("STORAGE_EMULATOR_HOST", "")), path
    raise StorageError(uri, f"the scheme must be file, s3, gs, http or https, got {scheme!r}")


@lru_cache(maxsize=8)
def _s3(endpoint: str, region: str, secrets: tuple[str, ...]) -> Any:
    # `secrets` only keys the cache: pyarrow reads them from the environment once, at this moment.
    from pyarrow import fs

    # Without these the SDK asks a metadata server that only exists on EC2, and waits for it.
    os.environ.setdefault("AWS_METADATA_SERVICE_TIMEOUT", "1")
    os.environ.setdefault("AWS_METADATA_SERVICE_NUM_ATTEMPTS", "1")
    options: dict[str, Any] = {}
    if endpoint:
        address = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        options |= {"endpoint_override": address.netloc, "scheme": address.scheme}
    if region:
        options["region"] = region
    return fs.S3FileSystem(
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        allow_bucket_creation=False,
        # Or every file, however small, is an upload in parts: three requests, and leftovers where one is cut off.
        allow_delayed_open=True,
        **options,
    )


@lru_cache(maxsize=2)
def _gcs(emulator: str) -> Any:
    from pyarrow import fs

    options: dict[str, Any] = {}
    if emulator:
        address = urlsplit(emulator if "://" in emulator else f"http://{emulator}")
        options = {"endpoint_override": address.netloc, "scheme": address.scheme, "anonymous": True}
    return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=10), **options)


def http_filesystem() -> Any:
    """Fsspec's filesystem for web servers; see `web_guard` for those it may not ask."""
    return _http(web_guard.current())


@lru_cache(maxsize=4)
def _http(guard: str | None) -> Any:
    import fsspec
    from aiohttp import ClientTimeout

    timeout = ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_REQUEST_SECONDS)
    guarded = {} if guard is None else {"get_client": web_guard.guarded_client(guard)}
    return fsspec.filesystem("http", client_kwargs={"timeout": timeout}, **guarded)


_DENIED = ("access denied", "access_denied", "accessdenied", "forbidden", "permission", "unauthorized",
           "invalid_access_key", "signature")  # fmt: skip
_ABSENT = ("not_found", "not found", "no such", "no_such_bucket", "does not exist", "path does not exist")
_SILENT = ("network_connection", "could not resolve", "could not connect", "cannot connect", "timeout", "timed out",
           "unavailable", "connection refused")  # fmt: skip


def as_storage_error(uri: str, error: OSError) -> StorageError:
    """What went wrong, in one sentence: absent, closed to us, out of reach, no space, or the layer's own words."""
    if error.errno == errno.ENOSPC:
        return StorageError(uri, "there is no space left on the device")
    if isinstance(error, PermissionError):
        return StorageError(uri, "access is denied")
    # fsspec says "not found" whatever happened; the cause tells.
    if isinstance(error, FileNotFoundError | NotADirectoryError) and error.__cause__ is None:
        return StorageError(uri, "there is no such file or directory")
    if isinstance(error, IsADirectoryError):
        return StorageError(uri, "must be a file, but is a directory")
    cause = error.__cause__ or error
    refused = next(
        (one for one in (error, cause, cause.__cause__) if isinstance(one, web_guard.RefusedAddressError)), None
    )
    if refused is not None:
        return StorageError(uri, str(refused))
    words = " ".join(str(cause).split())
    lower = words.lower()
    lower = lower[max(0, lower.find("aws error")) :]  # what stands before it is the key, which may be any words
    lower = re.sub(r"https?://\S+", "", lower)  # and so may an address be; a port such as 40345 is no status either
    told = re.search(r"\b(401|403|404)\b", lower)
    status = getattr(cause, "status", None) or (int(told[1]) if told else None)  # aiohttp's, or in the words
    if status in (401, 403) or (status != 404 and any(word in lower for word in _DENIED)):
        return StorageError(uri, "access is denied; check the credentials and their rights")
    if any(word in lower for word in _SILENT):
        return StorageError(uri, "the store cannot be reached; check the address, the network and AWS_ENDPOINT_URL")
    if isinstance(error, FileNotFoundError) or status == 404 or any(word in lower for word in _ABSENT):
        return StorageError(uri, "there is no such file or directory")
    return StorageError(uri, words[:300] or type(error).__name__)


@contextmanager
def telling(uri: str) -> Iterator[None]:
    """Turn what the layers below raise into a `StorageError` that names the URI."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise as_storage_error(uri, error) from error


class RemoteInput(io.BufferedReader):
    """A buffered remote stream whose faults are `StorageError`s that name the URI."""

    def __init__(self, uri: str, remote: Any) -> None:
        super().__init__(_Raw(uri, remote), buffer_size=_BUFFER_BYTES)


class _Raw(io.RawIOBase):
    def __init__(self, uri: str, remote: Any) -> None:
        self._uri, self._remote = uri, remote

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._remote.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        with telling(self._uri):
            self._remote.seek(offset, whence)
            return int(self._remote.tell())

    def tell(self) -> int:
        return int(self._remote.tell())

    def readinto(self, buffer: Any) -> int:
        with telling(self._uri):
            data = self._remote.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        # Python's own asks for 8 KiB at a time, and each time is a request to the store.
        with telling(self._uri):
            return bytes(self._remote.read())

    def close(self) -> None:
        if not self.closed:
            self._remote.close()
        super().close()
