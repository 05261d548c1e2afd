"""`kill -9` on the reconciler between any two of its calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from service_doubles import Killed, Killer
from service_world import World

from service.interfaces import AttemptState
from service.settings import Settings
from service.states import JobState


def succeeds(world: World, job_id: str) -> None:
    if world[job_id].state is JobState.RUNNING:
        world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED)


def loses_its_first_attempt(world: World, job_id: str) -> None:
    if world[job_id].state is JobState.RUNNING and world[job_id].attempt == 1:
        world.kill_process(job_id)
    else:
        succeeds(world, job_id)


def is_cancelled(world: World, job_id: str) -> None:
    if world[job_id].state is JobState.RUNNING:
        world.cancel(job_id)


def is_killed(world: World, job_id: str) -> None:
    if world[job_id].state is JobState.RUNNING:
        world.kill(job_id)


def pauses_and_goes_on(world: World, job_id: str) -> None:
    job = world[job_id]
    if job.attempt > 1:
        succeeds(world, job_id)
    elif job.state is JobState.RUNNING:
        world.pause(job_id)
    elif job.state is JobState.PAUSING:
        world.end(job_id, "PAUSED", AttemptState.SUCCEEDED)
    elif job.state is JobState.PAUSED:
        world.resume(job_id)


def is_lost_while_it_pauses(world: World, job_id: str) -> None:
    if world[job_id].state is JobState.PAUSING:
        world.kill_process(job_id)
    else:
        pauses_and_goes_on(world, job_id)


def is_cancelled_while_it_pauses(world: World, job_id: str) -> None:
    job = world[job_id]
    if job.state is JobState.RUNNING:
        world.pause(job_id)
    elif job.state is JobState.PAUSING:
        world.cancel(job_id)
        world.end(job_id, "PAUSED", AttemptState.SUCCEEDED)


SCENARIOS: list[tuple[Callable[[World, str], None], JobState, int]] = [
    (succeeds, JobState.SUCCEEDED, 1),
    (loses_its_first_attempt, JobState.SUCCEEDED, 2),
    (is_cancelled, JobState.CANCELLED, 1),
    (is_killed, JobState.CANCELLED, 1),
    (pauses_and_goes_on, JobState.SUCCEEDED, 2),
    (is_lost_while_it_pauses, JobState.SUCCEEDED, 2),
    (is_cancelled_while_it_pauses, JobState.CANCELLED, 1),
]


@pytest.mark.parametrize(("life", "end", "attempts"), SCENARIOS)
def test_kill_9_at_any_point_changes_nothing(
    settings: Settings, life: Callable[[World, str], None], end: JobState, attempts: int
) -> None:
    """The reconciler dies before or after its n-th call, for every n, and its successor ends the story the same."""
    n = 0
    while True:
        world = World(settings)
        job_id, killer = world.add(), Killer(n)
        world.reconciler = world.new_reconciler(killer)
        was_killed = False
        for _ in range(20):
            try:
                world.rounds(1, seconds=15)
            except Killed:
                was_killed = True
                world.reconciler = world.new_reconciler(Killer(-1))
            life(world, job_id)
        job = world[job_id]
        assert (job.state, job.attempt, job.is_log_saved) == (end, attempts, True), f"killed at {n}"
        assert world.launcher.submitted == [f"{job_id}-a{k + 1}" for k in range(attempts)], f"killed at {n}"
        assert set(world.folders.logs) == {(job_id, k + 1) for k in range(attempts)}, f"killed at {n}"
        if not was_killed:
            break
        n += 1
    assert n > 30
