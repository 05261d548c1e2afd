"""kill -9 in mid-run: a worker, the driver, the service. Nothing is lost, nothing is done twice."""

from __future__ import annotations

import time
from pathlib import Path

import mlflow
import pytest
from main_job import SPEC, TERMINAL, MainJob, finished, kill_process, wait_for, wait_for_step
from test_main_job import assert_same_weights

from service.client import ApiError, ElectraClient
from service.local import LocalStack

# The first job prepares the corpus, whichever test is asked for.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("main_job")]


def test_a_killed_worker_is_replaced_and_the_weights_are_the_same(
    stack: LocalStack, client: ElectraClient, main_job: MainJob
):
    job_id = client.submit(SPEC).job_id
    wait_for_step(client, job_id, 300)
    kill_process(stack, "ray::RayTrainWorker")
    job = finished(client, job_id)
    assert job.detail.attempt == 1
    assert_same_weights(job, main_job)


def test_a_killed_driver_is_started_again_and_the_weights_are_the_same(
    stack: LocalStack, client: ElectraClient, main_job: MainJob
):
    job_id = client.submit(SPEC).job_id
    wait_for_step(client, job_id, 300)
    kill_process(stack, "python -m pipelines.main", job_id)
    job = finished(client, job_id)
    assert job.detail.attempt == 2
    assert_same_weights(job, main_job)
    history = mlflow.MlflowClient(stack.mlflow_url).get_metric_history(
        job.detail.result.mlflow_run_id, "train/generator_loss"
    )
    steps = [metric.step for metric in history]
    assert len(steps) == len(set(steps)), "no figure is recorded twice"


def test_a_job_killed_while_it_is_cancelled_leaves_no_run_open(stack: LocalStack, client: ElectraClient):
    job_id = client.submit(SPEC).job_id
    progress = wait_for_step(client, job_id, 50).progress
    client.cancel(job_id)
    kill_process(stack, "python -m pipelines.main", job_id)
    job = wait_for(client, job_id, lambda job: job.state in TERMINAL, "its end")
    assert (job.state, job.result) == ("CANCELLED", None)
    assert mlflow.MlflowClient(stack.mlflow_url).get_run(progress.mlflow_run_id).info.status == "KILLED"


def test_a_killed_service_finds_its_job_again_and_a_second_job_prepares_nothing(
    stack: LocalStack, client: ElectraClient, main_job: MainJob
):
    """One job for both, for a job takes a minute: training itself is not disturbed here."""
    job_id = client.submit(SPEC).job_id
    wait_for_step(client, job_id, 100)
    stack.kill_service()
    time.sleep(20)
    stack.start_service()
    job = finished(client, job_id)
    assert job.detail.attempt == 1
    assert main_job.detail.result.corpus["was_found"] == 0
    assert job.detail.result.corpus["was_found"] == 1
    assert_same_weights(job, main_job)


def test_one_idempotency_key_makes_one_job(client: ElectraClient, tmp_path: Path):
    first = client.submit(SPEC, idempotency_key="the-key")
    again = client.submit(SPEC, idempotency_key="the-key")
    assert first.job_id == again.job_id
    with pytest.raises(ApiError) as refused:
        client.submit(SPEC, ["training.seed=1"], idempotency_key="the-key")
    assert (refused.value.problem.status, refused.value.problem.code) == (409, "idempotency_conflict")
    client.cancel(first.job_id)
