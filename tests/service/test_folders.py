"""Documents as the job's side writes them, read by the service's."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines import storage
from pipelines.job import JobDirectory
from pipelines.specs.documents import Control, JobResult, Progress
from pipelines.specs.model_source import RegisteredNetwork
from pipelines.specs.parsing import dump_spec, resolve_spec
from pipelines.specs.prediction import (
    ClassificationPrediction,
    PredictAnswer,
    PredictFailure,
    PredictInput,
    PredictJob,
    PredictOutcome,
)
from service.dispatch.folders import StoredJobFolders, StoredPredictionFolders
from service.interfaces import AnswerNotUnderstoodError, FolderError
from service.settings import Settings


@pytest.fixture
def folders(settings: Settings) -> StoredJobFolders:
    return StoredJobFolders(settings)


@pytest.fixture
def directory(settings: Settings) -> JobDirectory:
    """The same folder from the job's side."""
    return JobDirectory(settings.job_uri("x"))


def test_the_job_reads_what_the_service_writes(folders: StoredJobFolders, directory: JobDirectory) -> None:
    spec = resolve_spec({"kind": "pretrain", "preset": "tiny"})
    folders.write_spec("x", dump_spec(spec))
    assert directory.read_spec() == spec
    assert directory.read_control().action == "run"
    folders.request_stop("x", "pause", 2)
    assert directory.read_control() == Control(action="cancel", then="pause", attempt=2)
    folders.withdraw_stop("x")
    assert directory.read_control() == Control()


def test_the_service_reads_what_the_job_writes(folders: StoredJobFolders, directory: JobDirectory) -> None:
    assert folders.read_progress("x") is None
    assert folders.read_result("x") is None
    progress = Progress(attempt=2, heartbeat_at=datetime.now(UTC), losses={"a": 1.0})
    result = JobResult(state="SUCCEEDED", evaluation={"auc": 0.8})
    directory.write_progress(progress)
    directory.write_result(result)
    assert (folders.read_progress("x"), folders.read_result("x")) == (progress, result)


def test_figures_that_are_no_numbers_are_left_out(folders: StoredJobFolders, directory: JobDirectory) -> None:
    """A diverging job writes them, and JSON answers cannot carry them."""
    losses = {"a": float("nan"), "b": 1.0, "c": float("inf")}
    directory.write_progress(Progress(heartbeat_at=datetime.now(UTC), losses=losses, tokens_per_second=float("nan")))
    progress = folders.read_progress("x")
    assert progress is not None
    assert (progress.losses, progress.tokens_per_second) == ({"b": 1.0}, None)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"state": "DONE"}', '{"attempt": "x"}', "[" * 10**5])
def test_documents_that_make_no_sense_are_passed_over(
    folders: StoredJobFolders, settings: Settings, content: str
) -> None:
    path = Path(settings.job_uri("x")) / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert folders.read_result("x") is None


def test_documents_of_newer_versions_are_read(folders: StoredJobFolders, settings: Settings) -> None:
    path = Path(settings.job_uri("x")) / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"state": "SUCCEEDED", "mood": "good"}))
    assert folders.read_result("x") == JobResult(state="SUCCEEDED")


def test_logs_are_kept_by_attempt(folders: StoredJobFolders, settings: Settings) -> None:
    assert folders.read_log("x", 1) is None
    folders.save_log("x", 1, "é\n")
    assert folders.read_log("x", 1) == "é\n"
    assert (Path(settings.job_uri("x")) / "logs" / "attempt-1.log").is_file()


def test_a_storage_that_cannot_be_written_is_an_error(settings: Settings) -> None:
    Path(settings.storage_uri).write_text("a file where a folder should be")
    with pytest.raises(FolderError):
        StoredJobFolders(settings).write_spec("x", "{}")


def test_a_prediction_goes_to_its_program_and_back_and_leaves_nothing(settings: Settings) -> None:
    folders = StoredPredictionFolders(settings)
    job = PredictJob(model=RegisteredNetwork(name="m"), inputs=(PredictInput(text="é"),), timeout_seconds=1.5)
    assert folders.list_ids() == []
    folders.write_request("pr-1", job)
    assert folders.list_ids() == ["pr-1"]
    uri = settings.prediction_uri("pr-1")
    assert PredictJob.model_validate_json(storage.read_bytes(f"{uri}/request.json")) == job
    assert folders.read_outcome("pr-1") is None
    outcome = PredictOutcome(failure=PredictFailure(code="internal", message="why"))
    storage.write_json(f"{uri}/answer.json", outcome.model_dump(mode="json"))
    assert folders.read_outcome("pr-1") == outcome
    for _ in range(2):
        folders.delete("pr-1")
        assert not Path(uri).exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"answer": {"name": 5}}', '{"failure": {"code": "new"}}'])
def test_an_answer_that_makes_no_sense_is_told_from_none(settings: Settings, content: str) -> None:
    storage.write_bytes(f"{settings.prediction_uri('pr-1')}/answer.json", content.encode())
    with pytest.raises(AnswerNotUnderstoodError):
        StoredPredictionFolders(settings).read_outcome("pr-1")


def test_labels_keep_the_order_of_the_models_outputs(settings: Settings) -> None:
    said = ClassificationPrediction(label="b", probabilities={"neutral": 0.2, "b": 0.7, "a": 0.1})
    outcome = PredictOutcome(answer=PredictAnswer(name="m", architecture="Electra", predictions=(said,)))
    storage.write_bytes(f"{settings.prediction_uri('pr-1')}/answer.json", outcome.model_dump_json().encode())
    read = StoredPredictionFolders(settings).read_outcome("pr-1")
    assert read is not None
    assert read.answer is not None
    (prediction,) = read.answer.predictions
    assert isinstance(prediction, ClassificationPrediction)
    assert list(prediction.probabilities) == ["neutral", "b", "a"]


def test_words_of_a_document_that_makes_no_sense_are_not_logged(
    folders: StoredJobFolders, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(settings.job_uri("x")) / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"state": "a secret text"}')
    with caplog.at_level(logging.WARNING):
        assert folders.read_result("x") is None
    (record,) = caplog.records
    assert record.__dict__["error"].startswith("state: ")
    assert "secret" not in str(record.__dict__)
