"""A search on record: what is recorded of trials that change, and that pictures are no reason to lose a search."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import Run
from search_world import WEIGHT, rung_context

from pipelines.job import JobDirectory
from pipelines.record.identity import RunIdentity
from pipelines.record.tracking import open_run, record_child
from pipelines.searching import record
from pipelines.searching.ledger import Ledger
from pipelines.searching.record import TrialRecorder, draw_report
from pipelines.searching.trial import RungResult, SearchContext, make_trial
from pipelines.specs.trial_documents import SearchOutcome


@pytest.fixture
def context(tmp_path: Path) -> SearchContext:
    return rung_context(tmp_path)


@pytest.fixture
def parent(tmp_path: Path) -> RunIdentity:
    return open_run(f"sqlite:///{tmp_path}/mlflow.db", "search", "job-1", "a search", {})


def children(parent: RunIdentity) -> list[Run]:
    client = mlflow.MlflowClient(parent.tracking_uri)
    query = f"tags.`mlflow.parentRunId` = '{parent.run_id}'"
    return sorted(client.search_runs([parent.experiment_id], query), key=lambda one: one.info.run_name)


def history(parent: RunIdentity, run: Run, key: str) -> list[tuple[int, float]]:
    """Everything that was written, twice or not."""
    found = mlflow.MlflowClient(parent.tracking_uri).get_metric_history(run.info.run_id, key)
    return [(one.step, one.value) for one in found]


def recorded(context: SearchContext, parent: RunIdentity, ledger: Ledger) -> None:
    """As at the end of an attempt."""
    with TrialRecorder(parent, JobDirectory(context.job_uri), ledger) as recorder:
        recorder.finish()


def rung(context: SearchContext, number: int, score: float) -> RungResult:
    step = (5, 10, 20)[number]
    losses = ((step, {"generator_loss": 1.0 / step}),)
    result = RungResult(step, 100, 1e6, score, {"auc": score}, losses, 1.0, 1.0)
    result.write(make_trial(context, {WEIGHT: 7.0}), number)
    return result


def test_a_trial_that_failed_and_was_tried_again_is_recorded_as_it_ended(
    context: SearchContext, parent: RunIdentity
) -> None:
    """The first attempt at the job recorded it when it gave up, with what it had come to."""
    ledger = Ledger(JobDirectory(context.job_uri), "probe_mean", "max")
    ledger.add({WEIGHT: 7.0}, make_trial(context, {WEIGHT: 7.0}))
    ledger.reached(0, [rung(context, 0, 0.5)])
    ledger.ended(0, "FAILED", "the pairs are gone")
    recorded(context, parent, ledger)
    (run,) = children(parent)
    assert (run.data.tags["electra.trial_state"], run.info.status) == ("FAILED", "FINISHED")
    ledger.begins_again(0)
    ledger.reached(0, [rung(context, number, 0.5 + number / 10) for number in range(3)])
    ledger.ended(0, "COMPLETED")
    for _ in range(2):
        recorded(context, parent, ledger)
    (run,) = children(parent)
    assert (run.data.tags["electra.trial_state"], run.info.status) == ("COMPLETED", "FINISHED")
    assert "state" not in run.data.params
    assert run.data.params[WEIGHT] == "7.0"
    assert history(parent, run, "probe_mean") == [(5, 0.5), (10, 0.6), (20, 0.7)], "what was there is not there twice"
    assert len(history(parent, run, "train/generator_loss")) == 3


def test_a_child_lasts_as_long_as_what_it_records(parent: RunIdentity) -> None:
    record_child(parent, "toys seed 1", "toys/1", {}, [("score", 1, 0.5)], seconds=90.0)
    (run,) = children(parent)
    assert run.info.end_time - run.info.start_time >= 90_000


def test_a_child_of_an_earlier_version_blocks_no_job(context: SearchContext, parent: RunIdentity) -> None:
    """It has its state among its parameters, which MLflow never lets change, and its process died before its end."""
    client = mlflow.MlflowClient(parent.tracking_uri)
    tags = {"mlflow.parentRunId": parent.run_id, "electra.unit": "trial/0"}
    run_id = client.create_run(parent.experiment_id, run_name="trial 0000", tags=tags).info.run_id
    for key, value in (("state", "FAILED"), ("number", "0"), ("seed", "another")):
        client.log_param(run_id, key, value)
    ledger = Ledger(JobDirectory(context.job_uri), "probe_mean", "max")
    ledger.add({WEIGHT: 7.0}, make_trial(context, {WEIGHT: 7.0}))
    ledger.ended(0, "STOPPED")
    recorded(context, parent, ledger)
    (run,) = children(parent)
    assert (run.data.tags["electra.trial_state"], run.info.status) == ("STOPPED", "FINISHED")
    assert (run.data.params["seed"], run.data.params["round"]) == ("another", "search")


def test_a_part_without_tags_is_left_as_it_is(parent: RunIdentity) -> None:
    for value in (0.5, 0.75):
        record_child(parent, "toys seed 1", "toys/1", {"a": 1}, [("score", 1, value), ("loss", 1, math.nan)])
    (run,) = children(parent)
    assert history(parent, run, "score") == [(1, 0.5)]


def test_a_picture_that_cannot_be_drawn_costs_no_search(
    context: SearchContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("Axis limits cannot be NaN or Inf")

    drawn: list[Path] = []
    monkeypatch.setattr(record, "draw_search", fails)
    monkeypatch.setattr(record, "draw_study", lambda _, path: drawn.append(path))
    outcome = SearchOutcome(
        metric="auc",
        mode="max",
        num_trials=0,
        num_by_state={},
        is_study=True,
        verdict="A study.",
        flops_trials=0.0,
        flops_without_stopping=0.0,
    )
    left_out: dict[str, str] = {}
    draw_report(outcome, (), context.search.space, tmp_path, left_out)
    assert drawn == [tmp_path / "study.png"]
    assert left_out == {"picture of the search": "ValueError: Axis limits cannot be NaN or Inf"}
