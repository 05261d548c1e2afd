from __future__ import annotations

from datetime import UTC, datetime

import pytest
from service_world import World

from pipelines.specs.documents import Control, Failure, JobResult, Progress
from service.interfaces import AttemptState
from service.settings import Settings
from service.states import JobState

RETRY = Failure(stage="train", code="internal", message="node lost", can_retry=True)
FINAL = Failure(stage="prepare", code="data", message="no text")


@pytest.fixture
def world(settings: Settings) -> World:
    return World(settings)


def test_a_job_runs_to_its_end(world: World) -> None:
    job_id = world.running()
    job = world[job_id]
    assert (job.attempt, job.started_at) == (1, world.clock())
    assert world.folders.specs[job_id] == job.spec_json
    world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED, step=7)
    world.rounds()
    job = world[job_id]
    assert (job.state, job.result and job.result.step, job.is_log_saved) == (JobState.SUCCEEDED, 7, True)
    assert world.folders.logs == {(job_id, 1): f"log of {job_id}-a1\n"}
    assert world.launcher.submitted == [f"{job_id}-a1"]


def test_the_oldest_goes_first_and_the_others_wait(world: World) -> None:
    first, second = world.add(), world.add()
    world.rounds(5)
    assert (world[first].state, world[second].state) == (JobState.RUNNING, JobState.QUEUED)
    world.end(first, "FAILED", AttemptState.FAILED, failure=FINAL)
    world.rounds(5)
    assert (world[first].state, world[second].state) == (JobState.FAILED, JobState.RUNNING)


def test_progress_is_copied_but_not_that_of_another_attempt(world: World) -> None:
    job_id = world.running()
    world.folders.progress[job_id] = Progress(attempt=2, step=9, heartbeat_at=datetime.now(UTC))
    world.rounds(1)
    assert world[job_id].progress is None
    world.folders.progress[job_id] = Progress(attempt=1, step=5, heartbeat_at=datetime.now(UTC))
    world.rounds(1)
    assert world[job_id].progress == world.folders.progress[job_id]


def test_the_result_outranks_ray(world: World) -> None:
    """The exit code of a process that was killed on its way out says nothing about the model."""
    job_id = world.running()
    world.end(job_id, "SUCCEEDED", AttemptState.FAILED)
    world.rounds()
    assert world[job_id].state is JobState.SUCCEEDED


def test_a_failure_of_the_users_making_is_final(world: World) -> None:
    job_id = world.running()
    world.end(job_id, "FAILED", AttemptState.FAILED, failure=FINAL)
    world.rounds()
    failure = world[job_id].failure
    assert failure is not None
    assert (world[job_id].state, failure.code, failure.message) == (JobState.FAILED, "data", "no text")


def test_a_killed_driver_is_started_again_and_at_last_given_up(world: World) -> None:
    job_id = world.running()
    for attempt in (1, 2, 3):
        assert world[job_id].ray_submission_id == f"{job_id}-a{attempt}"
        world.kill_process(job_id)
        world.rounds(4, seconds=20)
    job = world[job_id]
    assert job.failure is not None
    assert (job.state, job.attempt, job.failure.code) == (JobState.FAILED, 3, "lost")
    assert world.launcher.submitted == [f"{job_id}-a{attempt}" for attempt in (1, 2, 3)]
    assert {attempt for _, attempt in world.folders.logs} == {1, 2, 3}


def test_the_next_attempt_waits_a_little(world: World) -> None:
    job_id = world.running()
    world.kill_process(job_id)
    world.rounds(5)
    assert (world[job_id].state, len(world.launcher.submitted)) == (JobState.STARTING, 1)
    world.rounds(2, seconds=world.settings.retry_delay_seconds)
    assert (world[job_id].state, len(world.launcher.submitted)) == (JobState.RUNNING, 2)


def test_a_result_that_can_be_retried_is(world: World) -> None:
    """But not before its process has left: two attempts never run side by side."""
    job_id = world.running()
    world.end(job_id, "FAILED", AttemptState.RUNNING, failure=RETRY)
    world.rounds(5)
    assert world[job_id].attempt == 1
    world.kill_process(job_id)
    world.rounds(4, seconds=10)
    assert (world[job_id].state, world[job_id].attempt) == (JobState.RUNNING, 2)


def test_an_old_result_is_no_word_on_a_new_attempt(world: World) -> None:
    job_id = world.running()
    world.end(job_id, "FAILED", AttemptState.FAILED, failure=RETRY)
    world.rounds(5, seconds=10)
    assert (world[job_id].state, world[job_id].attempt) == (JobState.RUNNING, 2)
    world.kill_process(job_id)
    world.rounds(1)
    failure = world[job_id].failure
    assert failure is not None
    assert (failure.code, failure.attempt, world[job_id].attempt) == ("lost", 2, 3)


def test_a_late_success_of_an_attempt_thought_lost_counts(world: World) -> None:
    job_id = world.running()
    world.launcher.restart_head()
    world.rounds(4, seconds=10)
    world.end(job_id, "SUCCEEDED", AttemptState.RUNNING, attempt=1)
    world.rounds(2)
    assert world[job_id].state is JobState.RUNNING
    world.kill_process(job_id)
    world.rounds(2)
    assert world[job_id].state is JobState.SUCCEEDED


def test_a_head_that_forgot_everything_means_a_new_attempt(world: World) -> None:
    job_id = world.running()
    world.launcher.restart_head()
    world.rounds(4, seconds=10)
    assert (world[job_id].state, world[job_id].attempt) == (JobState.RUNNING, 2)
    assert "head was restarted" in str(world[job_id].failure)


@pytest.mark.parametrize("word", ["down", "unknown"])
def test_what_ray_does_not_say_is_never_final(world: World, word: str) -> None:
    job_id = world.running()
    world.launcher.is_down = word == "down"
    world.launcher.set(f"{job_id}-a1", AttemptState.UNKNOWN)
    world.rounds(20, seconds=3600)
    assert (world[job_id].state, world[job_id].attempt) == (JobState.RUNNING, 1)
    world.folders.results[job_id] = JobResult(state="SUCCEEDED")
    world.rounds(1)
    assert world[job_id].state is JobState.SUCCEEDED


def test_jobs_wait_for_a_ray_that_is_away(world: World) -> None:
    world.launcher.is_down = True
    job_id = world.add()
    world.rounds(5, seconds=60)
    assert (world[job_id].state, world[job_id].waiting_reason) == (JobState.QUEUED, "cluster_unknown")
    assert world.store.status is not None
    assert not world.store.status.is_ray_reachable
    world.launcher.is_down = False
    world.rounds(3, seconds=60)
    assert world[job_id].state is JobState.RUNNING
    assert (world.store.status.num_cpus, world.store.status.is_ray_reachable) == (2, True)


def test_a_rejected_job_fails_at_once(world: World) -> None:
    world.launcher.rejects = True
    job_id = world.add()
    world.rounds()
    assert world[job_id].state is JobState.FAILED
    assert "rejected" in str(world[job_id].failure)


def test_a_silent_attempt_is_stopped_and_started_again(world: World) -> None:
    job_id = world.running()
    world.rounds(1)
    world.rounds(int(world.settings.heartbeat_timeout_seconds) // 60, seconds=60)
    assert world.launcher.stopped == []
    world.rounds(1, seconds=2)
    assert world.launcher.stopped == [f"{job_id}-a1"]
    world.rounds(3, seconds=10)
    assert (world[job_id].state, world[job_id].attempt) == (JobState.RUNNING, 2)
    assert "had not changed" in str(world[job_id].failure)


def test_a_queued_job_is_cancelled_without_ray(world: World) -> None:
    world.launcher.is_down = True
    world.add()
    job_id = world.add()
    world.cancel(job_id)
    world.rounds(1)
    assert (world[job_id].state, world.launcher.submitted) == (JobState.CANCELLED, [])


def test_a_running_job_is_asked_first(world: World) -> None:
    job_id = world.running()
    world.cancel(job_id)
    world.rounds(3, seconds=1)
    assert world[job_id].state is JobState.CANCELLING
    assert world.folders.controls == {job_id: Control(action="cancel", attempt=1)}
    assert world.launcher.stopped == []
    world.end(job_id, "CANCELLED", AttemptState.SUCCEEDED)
    world.rounds()
    assert (world[job_id].state, world[job_id].is_log_saved) == (JobState.CANCELLED, True)


def test_a_job_that_will_not_listen_is_stopped(world: World) -> None:
    job_id = world.running()
    world.cancel(job_id)
    world.rounds(4, seconds=world.settings.cancel_grace_seconds)
    assert world.launcher.stopped == [f"{job_id}-a1"]
    assert world[job_id].state is JobState.CANCELLED


def test_a_job_that_was_faster_than_its_cancellation_has_succeeded(world: World) -> None:
    job_id = world.running()
    world.cancel(job_id)
    world.rounds(1)
    world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED)
    world.rounds()
    assert world[job_id].state is JobState.SUCCEEDED


def test_a_job_to_be_cancelled_is_not_started_again(world: World) -> None:
    job_id = world.running()
    world.kill_process(job_id)
    world.cancel(job_id)
    world.rounds(5, seconds=60)
    assert (world[job_id].state, len(world.launcher.submitted)) == (JobState.CANCELLED, 1)


def test_a_process_that_hangs_after_its_result_is_ended(world: World) -> None:
    job_id = world.running()
    world.end(job_id, "SUCCEEDED", AttemptState.RUNNING)
    world.rounds(2)
    assert (world[job_id].state, world.launcher.stopped) == (JobState.SUCCEEDED, [])
    world.rounds(2, seconds=world.settings.cancel_grace_seconds)
    assert (world.launcher.stopped, world[job_id].is_log_saved) == ([f"{job_id}-a1"], True)


def test_a_broken_job_does_not_stop_the_others(world: World) -> None:
    broken = world.add()
    world.folders.broken.add(broken)
    other = world.add()
    world.rounds(5)
    assert (world[broken].state, world[other].state) == (JobState.QUEUED, JobState.RUNNING)


def test_a_thread_runs_rounds_until_it_is_stopped(world: World) -> None:
    job_id = world.add()
    world.reconciler.start()
    deadline = datetime.now(UTC).timestamp() + 20
    while world[job_id].state is not JobState.RUNNING and datetime.now(UTC).timestamp() < deadline:
        world.reconciler.wake()
    world.reconciler.stop()
    assert world[job_id].state is JobState.RUNNING


@pytest.mark.parametrize(("wish", "state"), [("none", JobState.FAILED), ("cancel", JobState.CANCELLED)])
@pytest.mark.parametrize("is_away", [False, True])
def test_the_run_of_a_job_that_died_is_ended_for_it(world: World, wish: str, state: JobState, is_away: bool) -> None:
    job_id = world.running()
    world.runs.is_away = is_away
    for _ in range(world.settings.max_attempts):
        attempt = world[job_id].attempt
        world.folders.progress[job_id] = Progress(
            attempt=attempt, mlflow_run_id="the-run", heartbeat_at=datetime.now(UTC)
        )
        world.rounds(1)
        if wish == "cancel":
            world.cancel(job_id)
        world.kill_process(job_id)
        world.rounds(4, seconds=60)
        if world[job_id].state is JobState.STARTING:
            world.rounds(2, seconds=600)
    assert world[job_id].state is state
    assert world.runs.ended == ({} if is_away else {"the-run": state})


def test_a_job_that_ended_by_itself_has_ended_its_run_too(world: World) -> None:
    job_id = world.running()
    world.folders.progress[job_id] = Progress(attempt=1, mlflow_run_id="the-run", heartbeat_at=datetime.now(UTC))
    world.rounds(1)
    world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED)
    world.rounds()
    assert (world[job_id].state, world.runs.ended) == (JobState.SUCCEEDED, {})


@pytest.mark.parametrize(("wish", "then"), [("cancel", "end"), ("pause", "pause")])
def test_a_wish_that_was_written_over_is_written_again(world: World, wish: str, then: str) -> None:
    """As by a replica that was frozen in the middle of that write."""
    job_id = world.running()
    getattr(world, wish)(job_id)
    world.rounds()
    world.folders.withdraw_stop(job_id)
    world.rounds(1)
    assert world.folders.controls[job_id] == Control(action="cancel", then=then, attempt=1)  # type: ignore[arg-type]
