"""Notes of who uses a prepared artifact, and what a listing of its folder tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines import storage
from pipelines.corpus.described import MAX_FILES, describe_sources
from pipelines.corpus.sources import take_inventory
from pipelines.specs.corpus import CorpusSpec
from pipelines.storage.uses import is_disposable, list_files, look_at, note_use


@pytest.mark.parametrize("owner", ["pt-1", "pt-1-a3"])
def test_a_use_is_noted_under_the_job_whatever_the_attempt(tmp_path: Path, owner: str) -> None:
    note_use(str(tmp_path / "corpora" / "ab"), owner)
    assert set(look_at(str(tmp_path / "corpora" / "ab")).uses) == {"pt-1"}


def test_an_artifact_is_complete_by_its_manifest_alone(tmp_path: Path) -> None:
    note_use(str(tmp_path), "pt-1")
    (tmp_path / "a.bin").write_bytes(b"12345")
    assert look_at(str(tmp_path)).completed_at is None
    (tmp_path / "manifest.json").write_text("{}")
    found = look_at(str(tmp_path))
    assert (found.completed_at is not None, found.size_bytes) == (True, 7)


def test_an_object_store_tells_the_same(bucket: str) -> None:
    uri = f"{bucket}/uses-test/ab"
    assert look_at(uri).files == ()
    note_use(uri, "pt-1-a1")
    storage.write_bytes(f"{uri}/source-000/a.bin", b"12345")
    storage.write_bytes(f"{uri}/manifest.json", b"{}")
    found = look_at(uri)
    assert [file.path for file in found.files] == ["manifest.json", "source-000/a.bin", "uses/pt-1.json"]
    assert (set(found.uses), found.size_bytes, found.completed_at is not None) == ({"pt-1"}, 7, True)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert list_files(str(tmp_path / "nowhere")) == ()
    assert look_at(str(tmp_path / "nowhere")).uses == {}


def test_links_are_listed_and_never_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("x")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside")
    assert [file.path for file in list_files(str(tmp_path / "inside"))] == ["link"]
    (tmp_path / "all").symlink_to(tmp_path / "outside")
    assert list_files(str(tmp_path / "all")) == ()


def test_notes_and_sources_outlive_the_artifact() -> None:
    kept = [path for path in ("uses/a.json", "sources.json", "manifest.json", "uses.bin") if not is_disposable(path)]
    assert kept == ["uses/a.json", "sources.json"]


def test_sources_are_told_with_sizes_and_one_hash_over_all_files(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 5):
        (tmp_path / f"{number:04}.txt").write_text("text")
    spec = CorpusSpec.model_validate({"sources": [{"type": "text", "uris": [str(tmp_path)]}]})
    document = describe_sources(take_inventory(spec), "0" * 64)
    (source,) = document["sources"]
    assert (source["num_files"], source["size_bytes"], len(source["files"])) == (
        MAX_FILES + 5,
        4 * (MAX_FILES + 5),
        200,
    )
    (tmp_path / f"{MAX_FILES + 4:04}.txt").write_text("changed")
    assert describe_sources(take_inventory(spec), "0" * 64)["sources"][0]["files_sha256"] != source["files_sha256"]
    assert json.loads(json.dumps(document)) == document
