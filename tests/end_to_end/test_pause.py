"""A job that is paused on the way and resumed ends as if nothing had been; its run in MLflow stays one."""

from __future__ import annotations

import mlflow
import pytest
from main_job import SPEC, MainJob, finished, wait_for, wait_for_step
from test_main_job import assert_same_weights

from service.client import ElectraClient
from service.local import LocalStack

pytestmark = pytest.mark.slow


def test_a_paused_job_ends_with_the_weights_of_an_undisturbed_one(
    stack: LocalStack, client: ElectraClient, main_job: MainJob
):
    job_id = client.submit(SPEC).job_id
    wait_for_step(client, job_id, 100)
    client.pause(job_id)
    paused = wait_for(client, job_id, lambda job: job.state == "PAUSED", "PAUSED")
    assert paused.progress is not None
    assert paused.progress.mlflow_run_id is not None
    runs = mlflow.MlflowClient(stack.mlflow_url)
    assert runs.get_run(paused.progress.mlflow_run_id).info.status == "SCHEDULED"
    client.resume(job_id)
    job = finished(client, job_id)
    assert job.detail.attempt == 2
    assert_same_weights(job, main_job)
    assert job.detail.result is not None
    assert job.detail.result.mlflow_run_id == paused.progress.mlflow_run_id
    assert runs.get_run(job.detail.result.mlflow_run_id).info.status == "FINISHED"


def test_a_job_paused_by_the_queue_for_a_more_urgent_one_ends_as_if_nothing_had_been(
    client: ElectraClient, main_job: MainJob
):
    low = client.submit(SPEC, fields={"priority": -1}).job_id
    wait_for_step(client, low, 100)
    urgent = client.submit(SPEC, ["training.num_train_steps=200", "training.seed=7"]).job_id
    finished(client, urgent)
    resumed = finished(client, low)
    assert (resumed.detail.attempt, resumed.detail.num_preemptions, resumed.detail.preempted_for) == (2, 1, urgent)
    assert_same_weights(resumed, main_job)
    at = {
        (job_id, event.payload["state"]): event.seq
        for job_id in (low, urgent)
        for event in client.follow_events(job_id, after=0)
        if event.type == "state"
    }
    # Two workers each, on two CPUs: at no time do both run.
    assert at[low, "PAUSED"] < at[urgent, "STARTING"] < at[urgent, "SUCCEEDED"] < at[low, "SUCCEEDED"]


def test_a_retry_goes_on_with_what_a_killed_job_left(client: ElectraClient, main_job: MainJob):
    job_id = client.submit(SPEC).job_id
    wait_for_step(client, job_id, 225)
    client.kill(job_id)
    killed = wait_for(client, job_id, lambda job: job.state == "CANCELLED", "CANCELLED")
    assert killed.result is None
    made = client.retry(job_id)
    assert (made.retry_of, made.goes_on_with) == (job_id, "checkpoint")
    job = finished(client, made.job_id)
    assert "checkpoint_taken_over" in client.logs(made.job_id)
    assert_same_weights(job, main_job)
