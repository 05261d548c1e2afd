"""MLflow: one run per job, nothing recorded twice."""

from __future__ import annotations

import math

import mlflow
import pytest

from pipelines.record import tracking
from pipelines.record.tracking import Run, flatten, last_recorded_step, metric_history, open_run


@pytest.fixture(scope="module")
def tracking_uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


def test_attempts_of_one_job_share_a_run(tracking_uri):
    first = open_run(tracking_uri, "e", "job-1", "name", {"electra.attempt": "1"})
    again = open_run(tracking_uri, "e", "job-1", "name", {"electra.attempt": "2"})
    other = open_run(tracking_uri, "e", "job-2", "name", {})
    assert first == again != other
    tags = mlflow.MlflowClient(tracking_uri).get_run(first.run_id).data.tags
    assert (tags["electra.job_id"], tags["electra.attempt"]) == ("job-1", "2")


def test_metrics_arrive_and_those_not_finite_stay_out(tracking_uri):
    identity = open_run(tracking_uri, "e", "job-3", "name", {})
    run = Run(identity)
    run.log_metrics(10, {"a": 1.5, "b": math.nan})
    run.log_metrics(20, {"a": 2.5})
    run.close()
    assert metric_history(identity, "a") == [(10, 1.5), (20, 2.5)]
    assert metric_history(identity, "b") == []


def test_a_resumed_attempt_records_only_what_is_new(tracking_uri):
    identity = open_run(tracking_uri, "e", "job-4", "name", {})
    for recorded_steps in ({}, {"a": 20}):
        run = Run(identity, recorded_steps)
        for step in (10, 20, 30):
            run.log_metrics(step, {"a": float(step)})
        run.close()
    history = mlflow.MlflowClient(tracking_uri).get_metric_history(identity.run_id, "a")
    assert [metric.step for metric in history] == [10, 20, 30, 30]
    assert last_recorded_step(identity, "a") == 30


def test_parameters_are_flat_and_may_be_recorded_again(tracking_uri):
    identity = open_run(tracking_uri, "e", "job-5", "name", {})
    for _ in range(2):
        tracking.log_params(identity, {"model": {"hidden_size": 128}, "name": "x"})
    params = mlflow.MlflowClient(tracking_uri).get_run(identity.run_id).data.params
    assert params == {"model.hidden_size": "128", "name": "x"}


def test_flatten_leaves_lists_whole():
    assert flatten({"a": {"b": [1, {"c": 2}]}, "d": 3}) == {"a.b": [1, {"c": 2}], "d": 3}


def test_ending_a_run_sets_its_status(tracking_uri):
    identity = open_run(tracking_uri, "e", "job-6", "name", {})
    tracking.end_run(identity, "FAILED", {"electra.failure": "why"})
    assert mlflow.MlflowClient(tracking_uri).get_run(identity.run_id).info.status == "FAILED"
