"""The queue at work: the real reconciler on the real store, of both databases, with a Ray of the test's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from queue_doubles import queue_of
from service_doubles import Killed, Killer
from service_world import World
from sqlalchemy import Engine

from pipelines.specs.documents import Control, Progress
from service.access.audit import local_caller
from service.interfaces import AttemptState, Capacity
from service.ledger.queue_store import SqlQueueStore
from service.ledger.store import SqlJobStore
from service.queueing.demand import Demand
from service.queueing.records import Quota, QuotaException
from service.settings import Settings
from service.states import JobState

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(settings: Settings, engine: Engine) -> MakeWorld:
    """A service that runs up to 10 jobs on 4 CPUs, unless set otherwise."""

    def make(**changes: Any) -> World:
        given = settings.model_copy(update={"max_running_jobs": 10, **changes})
        world = World(given, store=SqlJobStore(engine))  # type: ignore[arg-type]
        world.launcher.size = Capacity(4, 0)
        return world

    return make


def submit(world: World, cpus: float = 1, owner: str = "ada", **fields: Any) -> str:
    """A job of one worker that comes now."""
    return world.add(created_at=world.clock(), demand=Demand(cpus_per_worker=cpus), owner=owner, **fields)


def states(world: World, *job_ids: str) -> list[str]:
    return [world[job_id].state.value for job_id in job_ids]


def why(world: World, job_id: str) -> str | None:
    return world[job_id].waiting_reason


def preempt(world: World) -> tuple[str, str]:
    """A job that is pausing, and the one of higher priority that it makes room for."""
    low = submit(world, 3)
    world.rounds(3, seconds=10)
    urgent = submit(world, 3, owner="ben", priority=9)
    world.rounds(2, seconds=10)
    assert world[low].state is JobState.PAUSING
    return low, urgent


def test_jobs_run_side_by_side_as_far_as_there_is_room(make_world: MakeWorld) -> None:
    world = make_world()
    first, second, third = submit(world, 2), submit(world, 2), submit(world, 2)
    world.rounds()
    assert states(world, first, second, third) == ["RUNNING", "RUNNING", "QUEUED"]
    assert (why(world, third), world[third].queue_position) == ("cluster_busy", 1)
    world.end(first, "SUCCEEDED", AttemptState.SUCCEEDED)
    world.rounds()
    assert (world[third].state, why(world, third)) == (JobState.RUNNING, None)


def test_what_others_hold_on_the_cluster_counts(make_world: MakeWorld) -> None:
    world = make_world()
    world.launcher.held = (3.0, 0.0)
    job_id = submit(world, 2)
    world.rounds()
    assert why(world, job_id) == "cluster_busy"
    world.launcher.held = (2.0, 0.0)
    world.rounds()
    assert world[job_id].state is JobState.RUNNING


def test_a_job_that_never_fits_waits_until_the_cluster_is_larger(make_world: MakeWorld) -> None:
    world = make_world()
    job_id = submit(world, 5)
    world.rounds()
    assert why(world, job_id) == "cluster_too_small"
    world.launcher.size = Capacity(8, 0)
    world.rounds()
    assert world[job_id].state is JobState.RUNNING


def test_a_cluster_that_grows_is_as_large_as_it_can_be(make_world: MakeWorld) -> None:
    world = make_world(cluster_max_cpus=6.0)
    large = world.add(created_at=world.clock(), demand=Demand(num_workers=5, group_workers=5))
    more = submit(world, 2)
    world.rounds()
    assert (world[large].state, why(world, more)) == (JobState.RUNNING, "cluster_busy")


def test_while_ray_says_nothing_nothing_starts(make_world: MakeWorld) -> None:
    world = make_world()
    world.launcher.size = None
    job_id = submit(world)
    world.rounds()
    assert why(world, job_id) == "cluster_unknown"
    unseen = make_world(check_room=False)
    unseen.launcher.size = None
    unseen.rounds()
    assert unseen[job_id].state is JobState.RUNNING


def test_quotas_of_the_settings_and_of_administrators(make_world: MakeWorld, engine: Engine) -> None:
    world = make_world(quota_owner_running_jobs=1)
    jobs = [submit(world), submit(world), submit(world, owner="ben"), submit(world, owner="ben")]
    exception = QuotaException("owner", "ben", Quota(max_cpus=2), world.clock(), "root")
    SqlQueueStore(engine).put_quota(exception, local_caller().entry("quota.set", "owner ben", None))
    world.rounds()
    assert states(world, *jobs) == ["RUNNING", "QUEUED", "RUNNING", "RUNNING"]
    assert why(world, jobs[1]) == "quota_running_jobs"


def test_who_has_run_much_of_late_waits_and_a_restart_forgets_nothing(make_world: MakeWorld) -> None:
    world = make_world(max_running_jobs=1)
    first = submit(world)
    world.rounds(20, seconds=30)
    again, other = submit(world), submit(world, owner="ben")
    world.end(first, "SUCCEEDED", AttemptState.SUCCEEDED)
    world.restart()
    world.rounds()
    assert states(world, again, other) == ["QUEUED", "RUNNING"]


def test_what_was_used_fades(make_world: MakeWorld, engine: Engine) -> None:
    world = make_world(fair_share_half_life_seconds=60.0)
    job_id = submit(world, 2)
    world.rounds(31, seconds=10)
    used = SqlQueueStore(engine).usages()["ada"]
    assert used.cpu_seconds <= 2 * 60 / math.log(2) + 1e-6
    assert used.at(world.clock() + timedelta(seconds=60), timedelta(seconds=60)).cpu_seconds <= used.cpu_seconds / 2
    assert world[job_id].state is JobState.RUNNING


def test_an_urgent_job_has_a_lower_one_pause_which_comes_back_by_itself(make_world: MakeWorld) -> None:
    world = make_world()
    low, urgent = preempt(world)
    assert world.folders.controls[low] == Control(action="cancel", then="pause", attempt=1)
    assert (world[low].preempted_for, world[low].num_preemptions, why(world, urgent)) == (urgent, 1, "cluster_busy")
    world.end(low, "PAUSED", AttemptState.SUCCEEDED)
    world.rounds(3, seconds=2)
    assert states(world, low, urgent) == ["QUEUED", "RUNNING"]
    world.end(urgent, "SUCCEEDED", AttemptState.SUCCEEDED)
    world.rounds(3, seconds=2)
    assert (world[low].state, world[low].attempt, world[low].num_failures) == (JobState.RUNNING, 2, 0)
    assert world.folders.controls[low] == Control()


def test_room_that_is_being_made_is_given_to_no_other(make_world: MakeWorld) -> None:
    world = make_world()
    low, urgent = preempt(world)
    small = submit(world, 1, owner="eve")
    world.rounds(2, seconds=2)
    assert (world[low].state, why(world, small)) == (JobState.PAUSING, "behind")
    world.end(low, "PAUSED", AttemptState.SUCCEEDED)
    world.rounds(3, seconds=2)
    assert states(world, urgent, small) == ["RUNNING", "RUNNING"]


def test_a_person_who_pauses_a_preempted_job_keeps_it_paused(make_world: MakeWorld) -> None:
    world = make_world()
    low, _ = preempt(world)
    world.pause(low)
    world.end(low, "PAUSED", AttemptState.SUCCEEDED)
    world.rounds(5, seconds=2)
    assert world[low].state is JobState.PAUSED
    world.resume(low)
    world.rounds(1)
    assert (world[low].state, world[low].queued_at) == (JobState.QUEUED, world.clock())


def test_a_preempted_job_that_runs_again_is_left_alone_for_a_while(make_world: MakeWorld) -> None:
    world = make_world()
    low, urgent = preempt(world)
    world.end(low, "PAUSED", AttemptState.SUCCEEDED)
    world.rounds(3, seconds=2)
    world.end(urgent, "SUCCEEDED", AttemptState.SUCCEEDED)
    world.rounds(3, seconds=10)
    another = submit(world, 3, owner="ben", priority=9)
    world.rounds(3, seconds=10)
    assert states(world, low, another) == ["RUNNING", "QUEUED"]
    world.rounds(2, seconds=world.settings.preemption_min_run_seconds)
    assert world[low].state is JobState.PAUSING


def test_a_job_that_is_over_holds_its_place_while_its_process_lives(make_world: MakeWorld) -> None:
    """It has said that it is cancelled, and hangs on its way out."""
    world = make_world(max_running_jobs=1)
    first, second = submit(world), submit(world)
    world.rounds()
    world.cancel(first)
    world.rounds(2)
    world.end(first, "CANCELLED", AttemptState.RUNNING)
    world.rounds(2)
    assert (states(world, first, second), why(world, second)) == (["CANCELLED", "QUEUED"], "max_running_jobs")
    world.restart()
    world.rounds(2)
    assert world[second].state is JobState.QUEUED
    world.launcher.set(f"{first}-a1", AttemptState.STOPPED)
    world.rounds(3)
    assert world[second].state is JobState.RUNNING


def preempt_after_one_has_left(world: World) -> tuple[str, str]:
    """Two jobs of 2 CPUs ran, one has ended, and Ray says that all 4 are held; an urgent job wants 2."""
    first, low = submit(world, 2), submit(world, 2)
    world.rounds(2, seconds=20)
    for job_id in (first, low):
        world.folders.progress[job_id] = Progress(attempt=1, heartbeat_at=world.clock())
    world.launcher.held = (4.0, 0.0)
    world.rounds(2, seconds=20)
    world.end(first, "SUCCEEDED", AttemptState.SUCCEEDED)
    urgent = submit(world, 2, owner="ben", priority=9)
    return low, urgent


def test_nobody_is_paused_before_ray_can_have_reported_that_one_has_left(make_world: MakeWorld) -> None:
    """Two reports later the place is still held: it is a stranger's, and the job of lower priority has to leave."""
    world = make_world()
    world.launcher.report_number = 7
    low, urgent = preempt_after_one_has_left(world)
    world.rounds(5, seconds=0.5)
    world.launcher.report_number = 8
    world.rounds(2, seconds=0.5)
    assert states(world, low, urgent) == ["RUNNING", "QUEUED"]
    world.launcher.report_number = 9
    world.rounds(2, seconds=0.5)
    assert states(world, low, urgent) == ["PAUSING", "QUEUED"]


def test_where_reports_cannot_be_told_apart_some_seconds_are_enough(make_world: MakeWorld) -> None:
    world = make_world()
    low, _ = preempt_after_one_has_left(world)
    world.rounds(10, seconds=1)
    assert world[low].state is JobState.RUNNING
    world.rounds(2, seconds=10)
    assert world[low].state is JobState.PAUSING


@pytest.mark.parametrize(("project", "named"), [("a", True), ("b", False)])
def test_who_was_made_room_for_is_named_in_the_same_project_alone(
    make_world: MakeWorld, project: str, named: bool
) -> None:
    world = make_world()
    low = submit(world, 3, project="a")
    world.rounds(3, seconds=10)
    urgent = submit(world, 3, owner="ben", priority=9, project=project)
    world.rounds(2, seconds=10)
    assert (world[low].num_preemptions, world[low].preempted_for) == (1, urgent if named else None)
    assert named or low not in str(world[urgent].waiting_message)


def test_room_is_kept_for_who_has_waited_long_and_a_restart_forgets_nothing(make_world: MakeWorld) -> None:
    world = make_world(preemption=False)
    submit(world, 2)
    world.rounds()
    large = submit(world, 4, owner="ben")
    world.rounds(2, seconds=world.settings.reservation_seconds)
    world.restart()
    small = submit(world, 1, owner="eve", priority=-1)
    world.rounds()
    assert (why(world, large), why(world, small)) == ("cluster_busy", "behind")


def test_of_each_kind_of_job_some_are_looked_at_and_owners_take_turns(make_world: MakeWorld, engine: Engine) -> None:
    world = make_world()
    for _ in range(5):
        submit(world, owner="ada")
        world.clock.pass_seconds(1)
    other_kind = submit(world, 3, owner="ada")
    late = submit(world, owner="ben")
    found = SqlQueueStore(engine).list_queue(per_kind=2, limit=100)
    assert [job.owner for job in found] == ["ada", "ben", "ada", "ada"]
    assert [job.job_id for job in found[1:3]] == [late, other_kind]
    assert len(SqlQueueStore(engine).list_queue(per_kind=2, limit=2)) == 2


@pytest.mark.parametrize("blocked_by", ["project", "size"])
def test_a_hundred_jobs_that_cannot_start_hide_none_that_can(make_world: MakeWorld, blocked_by: str) -> None:
    """The first hundred of one owner wait for the quota of their project, or for a larger cluster."""
    world = make_world(max_running_jobs=1000)
    if blocked_by == "project":
        audit = local_caller().entry("quota.set", "project full", None)
        quota = QuotaException("project", "full", Quota(max_running_jobs=0), world.clock(), "root")
        queue_of(world.store).put_quota(quota, audit)
    for _ in range(101):
        submit(world, 1 if blocked_by == "project" else 99, project="full")
    last = submit(world, project="open")
    world.rounds()
    assert world[last].state is JobState.RUNNING


@pytest.mark.parametrize("dies_at", range(0, 60, 7))
def test_kill_9_in_the_middle_of_a_preemption_changes_nothing(settings: Settings, dies_at: int) -> None:
    """In memory, where it is fast; the queue's own calls are points to die at, too."""
    world = World(settings.model_copy(update={"max_running_jobs": 10}))
    world.launcher.size = Capacity(4, 0)
    low = submit(world, 3)
    world.rounds(4, seconds=10)
    urgent = submit(world, 3, owner="ben", priority=9)
    world.reconciler = world.new_reconciler(Killer(dies_at))
    for _ in range(30):
        try:
            world.rounds(1, seconds=10)
        except Killed:
            world.restart()
        if world[low].state is JobState.PAUSING and world[low].num_preemptions:
            world.end(low, "PAUSED", AttemptState.SUCCEEDED)
        if world[urgent].state is JobState.RUNNING:
            world.end(urgent, "SUCCEEDED", AttemptState.SUCCEEDED)
    assert (world[urgent].state, world[low].state, world[low].attempt) == (JobState.SUCCEEDED, JobState.RUNNING, 2)
    assert world.launcher.submitted == [f"{low}-a1", f"{urgent}-a1", f"{low}-a2"]
