"""Pausing, killing, limits and priorities, as the reconciler carries them out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from service_world import World

from pipelines.specs.documents import Control, Failure, Progress
from service.interfaces import AttemptState, AttemptStatus
from service.records import JobLimits
from service.settings import Settings
from service.states import FailureReason, JobState

RETRY = Failure(stage="train", code="internal", message="node lost", can_retry=True)


@pytest.fixture
def world(settings: Settings) -> World:
    return World(settings)


def paused(world: World) -> str:
    job_id = world.running()
    world.pause(job_id)
    world.rounds(1)
    world.end(job_id, "PAUSED", AttemptState.SUCCEEDED)
    world.rounds()
    assert world[job_id].state is JobState.PAUSED
    return job_id


def say(world: World, job_id: str, **fields: Any) -> None:
    progress = Progress(attempt=world[job_id].attempt, heartbeat_at=datetime.now(UTC), **fields)
    world.folders.progress[job_id] = progress


def test_a_pause_is_asked_for_and_its_place_is_given_to_the_next(world: World) -> None:
    job_id, other = world.running(), world.add()
    world.pause(job_id)
    world.rounds(2)
    assert world[job_id].state is JobState.PAUSING
    assert world.folders.controls == {job_id: Control(action="cancel", then="pause", attempt=1)}
    world.end(job_id, "PAUSED", AttemptState.RUNNING)
    world.rounds()
    assert (world[job_id].state, world[other].state) == (JobState.PAUSING, JobState.QUEUED)
    world.end(job_id, "PAUSED", AttemptState.SUCCEEDED)
    world.rounds()
    assert (world[job_id].state, world[other].state) == (JobState.PAUSED, JobState.RUNNING)
    assert (job_id, 1) in world.folders.logs


def test_a_resumed_job_goes_on_in_its_next_attempt(world: World) -> None:
    job_id = paused(world)
    world.rounds(5, seconds=3600)
    assert world[job_id].state is JobState.PAUSED
    world.resume(job_id)
    world.rounds(4)
    assert (world[job_id].state, world[job_id].attempt, world[job_id].num_failures) == (JobState.RUNNING, 2, 0)
    assert world.launcher.submitted == [f"{job_id}-a1", f"{job_id}-a2"]


def test_pauses_do_not_use_up_the_attempts(world: World) -> None:
    job_id = world.running()
    for attempt in range(1, world.settings.max_attempts + 3):
        assert (world[job_id].state, world[job_id].attempt) == (JobState.RUNNING, attempt)
        world.pause(job_id)
        world.rounds(1)
        world.end(job_id, "PAUSED", AttemptState.SUCCEEDED)
        world.rounds()
        world.resume(job_id)
        world.rounds(4)
    world.kill_process(job_id)
    world.rounds(4, seconds=20)
    assert world[job_id].state is JobState.RUNNING


def test_a_process_lost_while_pausing_counts_as_paused(world: World) -> None:
    job_id = world.running()
    say(world, job_id, mlflow_run_id="the-run")
    world.pause(job_id)
    world.rounds(1)
    world.kill_process(job_id)
    world.rounds()
    assert (world[job_id].state, world[job_id].attempt) == (JobState.PAUSED, 1)
    assert world.runs.ended == {"the-run": JobState.PAUSED}


def test_a_fault_that_may_pass_does_not_start_a_job_that_is_to_pause(world: World) -> None:
    job_id = world.running()
    world.pause(job_id)
    world.rounds(1)
    world.end(job_id, "FAILED", AttemptState.FAILED, failure=RETRY)
    world.rounds()
    assert world[job_id].state is JobState.PAUSED
    assert world[job_id].failure is not None


def test_a_job_that_does_not_pause_is_stopped_after_a_while(world: World) -> None:
    job_id = world.running()
    world.pause(job_id)
    world.rounds(1)
    world.rounds(1, seconds=world.settings.pause_grace_seconds - 1)
    assert world.launcher.stopped == []
    world.rounds(2, seconds=2)
    assert (world.launcher.stopped, world[job_id].state) == ([f"{job_id}-a1"], JobState.PAUSED)


def test_a_queued_job_waits_outside_the_queue(world: World) -> None:
    job_id = world.add()
    world.pause(job_id)
    world.rounds()
    assert (world[job_id].state, world[job_id].attempt) == (JobState.PAUSED, 0)
    world.resume(job_id)
    world.rounds(4)
    assert (world[job_id].state, world[job_id].attempt) == (JobState.RUNNING, 1)


def test_resumed_while_it_pauses_a_job_is_queued_at_once(world: World) -> None:
    job_id = world.running()
    world.pause(job_id)
    world.rounds(1)
    world.resume(job_id)
    world.end(job_id, "PAUSED", AttemptState.SUCCEEDED)
    world.rounds(5)
    assert (world[job_id].state, world[job_id].attempt) == (JobState.RUNNING, 2)


@pytest.mark.parametrize("result", ["PAUSED", "CANCELLED", "SUCCEEDED"])
def test_a_cancellation_after_a_pause_is_not_lost(world: World, result: str) -> None:
    """Whatever the job had read by then."""
    job_id = world.running()
    world.pause(job_id)
    world.rounds(1)
    world.cancel(job_id)
    world.rounds(1)
    assert world[job_id].state is JobState.CANCELLING
    assert world.folders.controls[job_id] == Control(action="cancel", attempt=1)
    world.end(job_id, result, AttemptState.SUCCEEDED)
    world.rounds()
    assert world[job_id].state == ("SUCCEEDED" if result == "SUCCEEDED" else "CANCELLED")


def test_the_run_of_a_job_that_paused_before_it_was_cancelled_is_closed(world: World) -> None:
    job_id = world.running()
    say(world, job_id, mlflow_run_id="the-run")
    world.pause(job_id)
    world.rounds(1)
    world.cancel(job_id)
    world.end(job_id, "PAUSED", AttemptState.SUCCEEDED)
    world.rounds()
    assert (world[job_id].state, world.runs.ended) == (JobState.CANCELLED, {"the-run": JobState.CANCELLED})


@pytest.mark.parametrize("wish", ["cancel", "kill"])
def test_a_paused_job_is_cancelled_without_ray(world: World, wish: str) -> None:
    job_id = paused(world)
    world.launcher.is_down = True
    getattr(world, wish)(job_id)
    world.rounds()
    assert (world[job_id].state, world[job_id].is_log_saved) == (JobState.CANCELLED, True)


def test_a_killed_job_is_not_waited_for(world: World) -> None:
    job_id = world.running()
    world.kill(job_id)
    world.rounds()
    assert (world.launcher.stopped, world[job_id].state) == ([f"{job_id}-a1"], JobState.CANCELLED)


def test_a_kill_cuts_a_cancellation_short(world: World) -> None:
    job_id = world.running()
    world.cancel(job_id)
    world.rounds(3)
    assert world[job_id].state is JobState.CANCELLING
    world.kill(job_id)
    world.rounds()
    assert world[job_id].state is JobState.CANCELLED


def test_a_job_has_its_whole_grace_however_late_it_was_asked(world: World) -> None:
    """The wish was noted while the service slept."""
    job_id = world.running()
    world.cancel(job_id)
    world.rounds(1, seconds=10 * world.settings.cancel_grace_seconds)
    world.rounds(1)
    assert (world.launcher.stopped, world[job_id].state) == ([], JobState.CANCELLING)


def test_the_highest_priority_goes_first_and_then_the_oldest(world: World) -> None:
    low, old, new, high = (world.add(priority=priority) for priority in (-1, 0, 0, 100))
    order = []
    for _ in range(4):
        world.rounds(4)
        job_id = next(job.job_id for job in world.store.list_unsettled() if job.state is JobState.RUNNING)
        order.append(job_id)
        world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED)
        world.rounds()
    assert order == [high, old, new, low]


def test_a_retry_is_told_whose_work_it_goes_on_with(world: World) -> None:
    job_id = world.add(retry_of="pt-old")
    world.rounds()
    assert world.folders.origins == {job_id: "pt-old"}


def test_memory_that_was_not_enough_is_not_tried_again(world: World) -> None:
    job_id = world.running()
    failure = Failure(stage="train", code="out_of_memory", message="8 GiB", can_retry=True)
    world.end(job_id, "FAILED", AttemptState.FAILED, failure=failure)
    world.rounds()
    told = world[job_id].failure
    assert told is not None
    assert (world[job_id].state, told.reason) == (JobState.FAILED, FailureReason.OUT_OF_MEMORY)


@pytest.mark.parametrize(
    ("message", "state", "reason"),
    [
        ("The actor died: ray.exceptions.OutOfMemoryError", JobState.FAILED, FailureReason.OUT_OF_MEMORY),
        ("killed due to memory pressure (OOM)", JobState.FAILED, FailureReason.OUT_OF_MEMORY),
        ("failed with exit code 137", JobState.STARTING, FailureReason.LOST),
        ("exit code -9, last available logs (truncated): OutOfMemoryError", JobState.STARTING, FailureReason.LOST),
        ("killed by SIGKILL by OOM killer due to high memory usage, or by ray stop", JobState.STARTING, "lost"),
    ],
)
def test_what_ray_says_of_memory_counts(world: World, message: str, state: JobState, reason: FailureReason) -> None:
    job_id = world.running()
    world.launcher.attempts[f"{job_id}-a1"] = AttemptStatus(AttemptState.FAILED, message)
    world.rounds(1)
    told = world[job_id].failure
    assert told is not None
    assert (world[job_id].state, told.reason) == (state, reason)


@pytest.mark.parametrize("wish", ["cancel", "pause", None])
def test_no_job_waits_for_a_log_that_ray_has_lost(world: World, wish: str | None) -> None:
    job_id = world.running()
    world.launcher.has_lost_logs = True
    if wish is not None:
        getattr(world, wish)(job_id)
        world.rounds(1)
    world.launcher.set(f"{job_id}-a1", AttemptState.FAILED)
    world.rounds()
    expected = {"cancel": JobState.CANCELLED, "pause": JobState.PAUSED, None: JobState.STARTING}
    assert world[job_id].state is expected[wish]


def test_a_log_that_is_never_had_is_given_up(world: World) -> None:
    job_id = world.running()
    world.launcher.has_lost_logs = True
    world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED)
    world.rounds()
    assert not world[job_id].is_log_saved
    world.rounds(2, seconds=3601)
    assert world[job_id].is_log_saved


def test_a_job_that_the_version_before_was_cancelling_is_ended(world: World) -> None:
    """Its row says when that was wished, and not when the job was told."""
    job_id = world.add(state=JobState.CANCELLING, attempt=1, cancel_requested_at=world.clock())
    world.launcher.set(f"{job_id}-a1", AttemptState.RUNNING)
    world.rounds(3, seconds=20)
    assert world[job_id].state is JobState.CANCELLED


def test_a_lower_limit_for_starting_ends_no_job_that_runs(world: World) -> None:
    job_id = world.add()
    world.launcher.attempts[f"{job_id}-a1"] = AttemptStatus(AttemptState.PENDING)
    world.rounds(5, seconds=30)
    world.launcher.set(f"{job_id}-a1", AttemptState.RUNNING)
    world.rounds(2)
    assert (world[job_id].state, world[job_id].starting_seconds) == (JobState.RUNNING, 0.0)


def limited(world: World, **limits: float) -> str:
    job_id = world.add(limits=JobLimits(**limits))
    world.rounds()
    return job_id


def test_a_job_that_runs_too_long_saves_a_checkpoint_and_fails(world: World) -> None:
    job_id = limited(world, running_seconds=100)
    world.rounds(4, seconds=30)
    assert world.folders.controls == {}
    world.rounds(1, seconds=30)
    assert world.folders.controls == {job_id: Control(action="cancel", attempt=1)}
    world.end(job_id, "CANCELLED", AttemptState.SUCCEEDED)
    world.rounds()
    told = world[job_id].failure
    assert told is not None
    assert (world[job_id].state, told.reason, told.code) == (JobState.FAILED, "deadline", "running_deadline")


def test_a_job_that_runs_too_long_and_does_not_listen_is_stopped(world: World) -> None:
    job_id = limited(world, running_seconds=100)
    world.rounds(8, seconds=30)
    told = world[job_id].failure
    assert told is not None
    assert (world[job_id].state, told.reason, world.launcher.stopped) == ("FAILED", "deadline", [f"{job_id}-a1"])


def test_attempts_are_added_up_and_pauses_left_out(world: World) -> None:
    job_id = limited(world, running_seconds=100)
    world.rounds(3, seconds=30)
    world.pause(job_id)
    world.rounds(1)
    world.end(job_id, "PAUSED", AttemptState.SUCCEEDED)
    world.rounds(1)
    assert world[job_id].running_seconds == 60
    world.rounds(5, seconds=3600)
    world.resume(job_id)
    world.rounds(4)
    world.rounds(2, seconds=30)
    assert (world[job_id].state, world[job_id].running_seconds) == (JobState.RUNNING, 120)


def test_a_job_that_ray_does_not_start_fails(world: World) -> None:
    job_id = world.add(limits=JobLimits(starting_seconds=100))
    world.rounds(1)
    world.launcher.set(f"{job_id}-a1", AttemptState.PENDING)
    world.rounds(4, seconds=30)
    assert world[job_id].state is JobState.STARTING
    world.rounds(3, seconds=30)
    told = world[job_id].failure
    assert told is not None
    assert (world[job_id].state, told.code, world.launcher.stopped) == (
        "FAILED",
        "starting_deadline",
        [f"{job_id}-a1"],
    )


def test_silence_has_a_limit_of_its_own_and_begins_another_attempt(world: World) -> None:
    job_id = limited(world, silence_seconds=100)
    for step in range(10):
        say(world, job_id, step=step)
        world.rounds(1, seconds=50)
    assert world[job_id].attempt == 1
    world.rounds(3, seconds=50)
    world.rounds(2, seconds=50)
    told = world[job_id].failure
    assert told is not None
    assert (world[job_id].attempt, told.reason, world.launcher.stopped) == (2, "lost", [f"{job_id}-a1"])


@pytest.mark.parametrize("limit", ["running_seconds", "silence_seconds", "starting_seconds"])
@pytest.mark.parametrize("blindness", ["ray_is_away", "nobody_looks", "a_new_reconciler"])
def test_time_in_which_nobody_looked_does_not_count(world: World, limit: str, blindness: str) -> None:
    job_id = world.add(limits=JobLimits(**{limit: 200}))
    world.rounds(1)
    if limit == "starting_seconds":
        world.launcher.set(f"{job_id}-a1", AttemptState.PENDING)
    world.rounds(2)
    before = world[job_id].state
    for _ in range(2):
        match blindness:
            case "ray_is_away":
                world.launcher.is_down = True
                world.rounds(20, seconds=600)
                world.launcher.is_down = False
                world.rounds(1, seconds=600)
            case "nobody_looks":
                world.rounds(1, seconds=86_400)
            case "a_new_reconciler":
                world.restart()
                world.rounds(1, seconds=86_400)
        world.rounds(1)
    assert (world[job_id].state, world[job_id].attempt, world.launcher.stopped) == (before, 1, [])
    assert before is (JobState.STARTING if limit == "starting_seconds" else JobState.RUNNING)


def test_a_deadline_that_was_found_outlives_the_reconciler(world: World) -> None:
    job_id = limited(world, running_seconds=100)
    world.rounds(5, seconds=30)
    world.restart()
    world.kill_process(job_id)
    world.rounds()
    told = world[job_id].failure
    assert told is not None
    assert (world[job_id].state, told.reason) == (JobState.FAILED, FailureReason.DEADLINE)


def test_whoever_finishes_in_time_after_all_has_succeeded(world: World) -> None:
    job_id = limited(world, running_seconds=100)
    world.rounds(6, seconds=30)
    world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED)
    world.rounds()
    assert world[job_id].state is JobState.SUCCEEDED
