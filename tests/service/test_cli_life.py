"""The commands that a job's life is ruled by, against a real service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_service import serve_desk
from service_doubles import START, make_job
from typer.testing import CliRunner, Result

from service.cli import app
from service.http.desk import Desk
from service.ledger.store import SqlJobStore
from service.records import JobFailure
from service.settings import Settings
from service.states import JobState


@pytest.fixture(autouse=True)
def service(settings: Settings, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ELECTRA_HOME", str(tmp_path / "no-stack"))
    with serve_desk(settings, desk) as address:
        monkeypatch.setenv("ELECTRA_URL", address)
        yield


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def read(*arguments: str) -> dict:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def failed(store: SqlJobStore, code: str = "lost") -> str:
    failure = JobFailure(code=code, message="m", attempt=1)
    job = make_job(state=JobState.FAILED, finished_at=START, failure=failure, labels={"a": "1"})
    store.insert(job)
    return job.job_id


def test_a_job_is_submitted_with_all_that_is_said_of_it() -> None:
    limits = ["--starting-seconds", "60", "--running-seconds", "3600", "--silence-seconds", "90"]
    job = read("submit", "tiny", "--priority", "5", "--label", "a=1", "--label", "b=", "--note", "n", *limits)
    assert (job["priority"], job["labels"], job["notes"]) == (5, {"a": "1", "b": ""}, "n")
    assert job["limits"] == {"starting_seconds": 60, "running_seconds": 3600, "silence_seconds": 90}
    assert [one["job_id"] for one in read("jobs", "--label", "a=1", "--label", "b=")["items"]] == [job["job_id"]]
    assert read("jobs", "--label", "a=2")["items"] == []
    shown = run("show", job["job_id"]).stdout
    assert all(word in shown for word in ("a=1", "priority", "notes"))


def test_a_label_that_is_none_is_told_before_anything_is_sent() -> None:
    result = run("submit", "tiny", "--label", "a b=c")
    assert (result.exit_code, "label's key" in result.stderr) == (2, True)


def test_a_job_is_paused_and_resumed() -> None:
    job_id = read("submit", "tiny")["job_id"]
    assert "electra resume" in run("pause", job_id).stdout
    assert read("show", job_id)["pause_requested"] is True
    assert read("resume", job_id) == {"job_id": job_id, "state": "QUEUED"}
    again = run("resume", job_id)
    assert (again.exit_code, "wrong_state" in again.stderr) == (4, True)


def test_a_job_is_killed() -> None:
    job_id = read("submit", "tiny")["job_id"]
    assert "is being ended" in run("kill", job_id).stdout
    assert read("show", job_id)["kill_requested"] is True


def test_a_failed_job_is_retried_and_cloned(store: SqlJobStore) -> None:
    old = failed(store)
    assert "goes on with its newest checkpoint" in run("retry", old).stdout
    made = read("clone", old, "--set", "training.seed=9", "--label", "b=2")
    assert (made["clone_of"], made["labels"]) == (old, {"b": "2"})
    assert read("show", made["job_id"])["spec"]["training"]["seed"] == 9


def test_a_job_without_memory_enough_is_not_retried_as_it_was(store: SqlJobStore) -> None:
    old = failed(store, "out_of_memory")
    refused = run("retry", old)
    assert (refused.exit_code, "fails_again" in refused.stderr) == (4, True)
    assert run("retry", old, "--set", "training.gradient_accumulation_steps=2").exit_code == 0


def test_a_finished_job_is_archived_and_comes_back(store: SqlJobStore) -> None:
    old = failed(store)
    assert "electra jobs --archived" in run("archive", old).stdout
    assert read("jobs")["items"] == []
    assert [job["job_id"] for job in read("jobs", "--archived")["items"]] == [old]
    assert run("unarchive", old).exit_code == 0
    assert [job["job_id"] for job in read("jobs")["items"]] == [old]


def test_an_edit_adds_and_takes_away(store: SqlJobStore) -> None:
    old = failed(store)
    edited = read("edit", old, "--label", "b=2", "--remove-label", "a", "--priority", "-3", "--note", "seen")
    assert (edited["labels"], edited["priority"], edited["notes"]) == ({"b": "2"}, -3, "seen")
    assert read("edit", old, "--note", "")["notes"] == ""
    assert run("edit", old).exit_code == 2
