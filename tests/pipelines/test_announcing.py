from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from pipelines.announcing import CONFIG_VARIABLE, announce
from pipelines.job import JobDirectory
from service.dispatch.folders import StoredJobFolders
from service.settings import Settings


@pytest.fixture
def folders(tmp_path: Path) -> StoredJobFolders:
    return StoredJobFolders(Settings(home=tmp_path, storage_uri=str(tmp_path)))


def told_by_ray(monkeypatch: pytest.MonkeyPatch, name: str = "raysubmit_1") -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps({"runtime_env": {}, "metadata": {"job_submission_id": name}}))


def test_a_service_over_the_same_storage_hears_of_the_job(
    tmp_path: Path, folders: StoredJobFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_by_ray(monkeypatch)
    announce(JobDirectory(str(tmp_path / "jobs" / "pt-1")), 3)
    assert folders.list_announced() == ["pt-1"]
    word = folders.read_announcement("pt-1")
    assert word is not None
    assert (word.job_id, word.attempt, word.submission_id) == ("pt-1", 3, "raysubmit_1")
    folders.withdraw_announcement("pt-1")
    folders.withdraw_announcement("pt-1")
    assert (folders.list_announced(), folders.read_announcement("pt-1")) == ([], None)


@pytest.mark.parametrize("config", [None, "{}", "no JSON", '{"metadata": {"job_submission_id": 7}}'])
def test_what_ray_did_not_start_is_not_announced(
    tmp_path: Path, folders: StoredJobFolders, monkeypatch: pytest.MonkeyPatch, config: str | None
) -> None:
    if config is None:
        monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(CONFIG_VARIABLE, config)
    announce(JobDirectory(str(tmp_path / "jobs" / "pt-1")), 1)
    assert folders.list_announced() == []


def test_a_job_whose_name_the_service_would_not_take_runs_unannounced(
    tmp_path: Path, folders: StoredJobFolders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told_by_ray(monkeypatch)
    with caplog.at_level(logging.WARNING):
        announce(JobDirectory(str(tmp_path / "jobs" / "Named_By_Hand")), 1)
    assert folders.list_announced() == []
    assert "job_not_announced" in caplog.text


def test_word_that_names_another_job_is_not_heard(
    tmp_path: Path, folders: StoredJobFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_by_ray(monkeypatch)
    announce(JobDirectory(str(tmp_path / "jobs" / "pt-1")), 1)
    (tmp_path / "announced" / "pt-1.json").rename(tmp_path / "announced" / "pt-2.json")
    assert folders.list_announced() == ["pt-2"]
    assert folders.read_announcement("pt-2") is None
