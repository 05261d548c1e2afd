"""The folder of one prediction's files."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from pipelines.predicting.scratch import LEFT_BEHIND_SECONDS, scratch_folder


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"electra-predict-{os.getuid()}"


def test_it_is_gone_afterwards(parent: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == parent
        (folder / "model").mkdir()
    assert list(parent.iterdir()) == []
    assert parent.stat().st_mode & 0o777 == 0o700


def test_what_killed_processes_left_is_deleted_and_what_others_use_is_not(parent: Path) -> None:
    for name, age in (("old", LEFT_BEHIND_SECONDS + 60), ("young", LEFT_BEHIND_SECONDS - 60)):
        (parent / name).mkdir(parents=True)
        (parent / name / "weights").touch()
        os.utime(parent / name, (time.time() - age,) * 2)
    parent.chmod(0o700)
    with scratch_folder():
        assert not (parent / "old").exists()
        assert (parent / "young" / "weights").exists()


def test_a_folder_of_that_name_that_others_could_write_is_not_used(parent: Path, tmp_path: Path) -> None:
    parent.mkdir()
    parent.chmod(0o777)
    with scratch_folder() as folder:
        assert folder.parent == tmp_path


def test_a_link_of_that_name_is_not_followed(parent: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    parent.symlink_to(tmp_path / "elsewhere")
    with scratch_folder() as folder:
        assert folder.parent == tmp_path
