"""Files behind URIs: local paths with odd names, an S3 server, and faults told in one sentence."""

from __future__ import annotations

import http.server
import logging
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import storage
from pipelines.errors import StorageError
from pipelines.storage.remote import as_storage_error
from pipelines.storage.wildcards import matcher


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same expectations hold for a folder and for a bucket."""
    if request.param == "local":
        return str(tmp_path)
    bucket: str = request.getfixturevalue("bucket")
    return f"{bucket}/{tmp_path.name}"


def test_json_comes_back(root: str) -> None:
    uri = storage.join(root, "a b", "c%20d", "é.json")
    storage.write_json(uri, {"a": [1, "ü"]})
    assert storage.read_json(uri) == {"a": [1, "ü"]}


def test_a_file_exists_once_it_is_written(root: str) -> None:
    uri = storage.join(root, "x", "y")
    assert not storage.exists(uri)
    storage.write_bytes(uri, b"1")
    assert storage.exists(uri)
    assert storage.exists(storage.join(root, "x"))


def test_writing_again_replaces(root: str) -> None:
    uri = storage.join(root, "x")
    storage.write_bytes(uri, b"long text")
    storage.write_bytes(uri, b"short")
    assert storage.read_bytes(uri) == b"short"


def test_a_write_that_fails_leaves_the_old_content(root: str) -> None:
    uri = storage.join(root, "x")
    storage.write_bytes(uri, b"old")
    with pytest.raises(ZeroDivisionError), storage.open_output(uri) as stream:
        stream.write(b"new" * (1 // len(root[:0])))
    assert storage.read_bytes(uri) == b"old"
    assert storage.list_directory(root) == [uri]


def test_streams_can_seek(root: str) -> None:
    uri = storage.join(root, "x")
    storage.write_bytes(uri, b"one\ntwo\nthree\n")
    with storage.open_input(uri) as stream:
        stream.seek(4)
        assert stream.readline() == b"two\n"
        assert stream.tell() == 8
        assert stream.read() == b"three\n"


@pytest.fixture
def requests(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """The methods by which a key was asked for so far, as the S3 server logs them."""
    caplog.set_level(logging.INFO, "werkzeug")

    def of(key: str) -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.name == "werkzeug"]
        return re.findall(rf"([A-Z]+) /texts/{key}\b", "\n".join(lines))

    return of


def test_a_whole_file_is_asked_for_at_once(bucket: str, requests: Callable[[str], list[str]]) -> None:
    storage.write_bytes(f"{bucket}/whole", bytes(1 << 20))
    assert storage.read_bytes(f"{bucket}/whole") == bytes(1 << 20)
    assert requests("whole").count("GET") == 1


def test_a_small_file_is_written_by_one_request(bucket: str, requests: Callable[[str], list[str]]) -> None:
    storage.write_bytes(f"{bucket}/small", b"1")
    assert requests("small") == ["PUT"]


def test_a_large_file_is_uploaded_in_parts(bucket: str, requests: Callable[[str], list[str]]) -> None:
    storage.write_bytes(f"{bucket}/large", bytes(12 << 20))
    assert requests("large") == ["POST", "PUT", "PUT", "POST"]
    assert storage.read_bytes(f"{bucket}/large") == bytes(12 << 20)


def test_the_rest_of_a_file_is_what_was_not_read_yet(root: str) -> None:
    uri = storage.join(root, "x")
    storage.write_bytes(uri, bytes(range(256)) * (40 << 10))
    with storage.open_input(uri) as stream:
        start = stream.read(300)
        assert start + stream.read() == bytes(range(256)) * (40 << 10)


FILES = ("a.txt", "b.jsonl", "sub dir/a.txt", "sub dir/deep/c.txt", "_temporary/d.txt", ".hidden/e.txt")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.txt", ["a.txt"]),
        ("*.txt", ["a.txt"]),
        ("**/*.txt", ["a.txt", "sub dir/a.txt", "sub dir/deep/c.txt", "_temporary/d.txt", ".hidden/e.txt"]),
        ("sub dir", ["sub dir/a.txt", "sub dir/deep/c.txt"]),
        ("sub*/**", ["sub dir/a.txt", "sub dir/deep/c.txt"]),
        ("[ab].*", ["a.txt", "b.jsonl"]),
        ("[!a].jsonl", ["b.jsonl"]),
        ("?.txt", ["a.txt"]),
        ("", ["a.txt", "b.jsonl", "sub dir/a.txt", "sub dir/deep/c.txt"]),
    ],
)
def test_files_directories_and_globs_expand(root: str, pattern: str, expected: list[str]) -> None:
    for name in FILES:
        storage.write_bytes(storage.join(root, name), name.encode())
    found = storage.expand(storage.join(root, pattern) if pattern else root)
    assert [file.uri for file in found] == sorted(storage.join(root, name) for name in expected)
    assert all(file.size_bytes > 0 and file.identity for file in found)


def test_the_identity_changes_with_the_content(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1")
    before = storage.expand(str(path))
    path.write_bytes(b"12")
    assert storage.expand(str(path)) != before


def test_list_directory_is_not_recursive(root: str) -> None:
    for name in ("b", "a/x"):
        storage.write_bytes(storage.join(root, name), b"1")
    assert storage.list_directory(root) == [storage.join(root, "a"), storage.join(root, "b")]
    assert storage.list_directory(storage.join(root, "nothing")) == []


def test_delete_tree_takes_files_and_folders_and_nothing_else(root: str) -> None:
    for name in ("a/x", "a/y/z", "b"):
        storage.write_bytes(storage.join(root, name), b"1")
    storage.delete_tree(storage.join(root, "a"))
    storage.delete_tree(storage.join(root, "nothing"))
    assert [file.uri for file in storage.expand(root)] == [storage.join(root, "b")]


def test_upload_tree_copies_what_lies_below(root: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    local = tmp_path_factory.mktemp("tree")
    (local / "sub").mkdir()
    (local / "sub/x").write_bytes(b"1")
    storage.upload_tree(local, storage.join(root, "copy"))
    assert storage.read_bytes(storage.join(root, "copy/sub/x")) == b"1"


def test_relative_and_encoded_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert storage.normalise("a/../b c") == str(tmp_path / "b c")
    assert storage.normalise((tmp_path / "50% #1?").as_uri()) == str(tmp_path / "50% #1?")
    assert storage.local_path("50%20x") == tmp_path / "50%20x"
    assert storage.local_path("s3://b/x") is None
    assert storage.normalise("s3://b/x/") == "s3://b/x"


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("nothing.txt", "no such file"),
        ("nothing/*.txt", "no file matches"),
        ("ftp://x/y", "scheme must be"),
        ("file://elsewhere/x", "must not name a host"),
        ("s3://", "must name a bucket"),
        ("http://127.0.0.1:9/x", "cannot be reached"),
    ],
)
def test_faults_name_the_uri_and_the_reason(
    uri: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match=reason) as caught:
        storage.expand(uri)
    assert uri.rsplit("/", maxsplit=1)[-1] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_object_is_told(bucket: str) -> None:
    for uri in (f"{bucket}/nothing", "s3://no-such-bucket-here/x"):
        with pytest.raises(StorageError, match="no such file"):
            storage.expand(uri)
        with pytest.raises(StorageError, match="no such file"):
            storage.read_bytes(uri)


@pytest.mark.parametrize("size_bytes", [1, 12 << 20])
def test_a_missing_bucket_is_told_to_who_writes(bucket: str, size_bytes: int) -> None:
    with pytest.raises(StorageError, match=r"s3://no-such-bucket-here/x: there is no such file"):
        storage.write_bytes("s3://no-such-bucket-here/x", bytes(size_bytes))


@pytest.mark.parametrize("after", [{"said": "no"}, {"said": "something far longer than before"}])
def test_a_document_that_is_replaced_while_it_is_read_comes_whole(
    bucket: str, monkeypatch: pytest.MonkeyPatch, after: dict[str, str]
) -> None:
    uri = f"{bucket}/replaced.json"
    storage.write_json(uri, {"said": "something"})
    open_input, left = storage.open_input, [after]

    def opened(uri: str) -> IO[bytes]:
        stream = open_input(uri)  # has asked for the length
        if left:
            storage.write_json(uri, left.pop())
        return stream

    monkeypatch.setattr(storage, "open_input", opened)
    assert storage.read_json(uri) == after


@pytest.mark.timeout(120)
def test_an_unreachable_store_fails_before_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    with pytest.raises(StorageError, match=r"s3://bucket/x: .*cannot be reached"):
        storage.read_bytes("s3://bucket/x")


def test_a_closed_folder_is_told(tmp_path: Path) -> None:
    error = storage.StorageError(str(tmp_path), "access is denied")
    assert str(error) == f"{tmp_path}: access is denied"


def test_damaged_json_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(StorageError, match="must be JSON"):
        storage.read_json(str(tmp_path / "x.json"))


@pytest.fixture
def web_server(tmp_path: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_web_addresses_are_read_only(web_server: str, tmp_path: Path) -> None:
    (tmp_path / "x y.txt").write_bytes(b"one\ntwo\n")
    uri = f"{web_server}/x%20y.txt"
    assert storage.read_bytes(uri) == b"one\ntwo\n"
    assert [file.size_bytes for file in storage.expand(uri)] == [8]
    with pytest.raises(StorageError, match="read-only"):
        storage.write_bytes(uri, b"")
    with pytest.raises(StorageError, match="no such file"):
        storage.expand(f"{web_server}/nothing")


@pytest.mark.parametrize(
    ("status", "sentence"), [(404, "no such file"), (403, "access is denied"), (401, "access is denied")]
)
def test_an_address_is_not_read_as_the_reason(status: int, sentence: str) -> None:
    cause = OSError(f"{status}, message='Sorry', url='http://127.0.0.1:40345/forbidden/401/x404.txt'")
    error = FileNotFoundError("http://127.0.0.1:40345/forbidden/401/x404.txt")
    error.__cause__ = cause
    assert sentence in str(as_storage_error("u", error))


@given(st.text(alphabet="ab/.*?[]!-^\\&~|", max_size=30))
def test_any_pattern_compiles(pattern: str) -> None:
    assert matcher(f"/{pattern}")("/ab") in (True, False)
