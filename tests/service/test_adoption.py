"""Attempts that nobody at the desk started: what becomes of their rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from service_doubles import START, MemoryJobStore, make_job
from service_world import World

from pipelines.specs.documents import Announcement, Failure, JobResult
from service.dispatch import adoption
from service.dispatch.adoption import Adoption
from service.interfaces import AttemptState, Capacity
from service.settings import Settings
from service.states import JobState

BY_RAY = "raysubmit_Ab1"


class Found(World):
    """A world whose reconciler looks for others' attempts in each round."""

    elapsed = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.restart()

    def restart(self) -> None:
        super().restart()
        self.reconciler._adoption = Adoption(
            self.store, self.launcher, self.folders, self.settings, self.clock, lambda: self.elapsed
        )

    def rounds(self, number: int = 3, seconds: float = 0) -> None:
        for _ in range(number):
            self.elapsed += adoption.STRAY_SECONDS + adoption.PUT_OFF_SECONDS
            super().rounds(1, seconds)

    def announce(self, job_id: str = "pt-by-ray", attempt: int = 1, submission: str = BY_RAY) -> str:
        """A job that came by `ray job submit`: Ray runs it, and its folder is there."""
        self.launcher.set(submission, AttemptState.RUNNING)
        self.launcher.logs[submission] = f"log of {submission}\n"
        self.folders.specs[job_id] = make_job().spec_json
        self.folders.announced[job_id] = Announcement(
            job_id=job_id, attempt=attempt, submission_id=submission, began_at=self.clock()
        )
        return job_id


@pytest.fixture
def world(settings: Settings) -> Found:
    return Found(settings)


def test_a_job_by_ray_job_submit_comes_into_the_list_and_runs_to_its_end(world: Found) -> None:
    job_id = world.announce()
    world.rounds()
    job = world[job_id]
    assert (job.state, job.attempt, job.ray_submission_id) == (JobState.RUNNING, 1, BY_RAY)
    assert (job.owner, job.project, job.kind, job.spec_json) == ("local", "default", "pretrain", make_job().spec_json)
    assert job.demand == make_job().demand
    assert (world.folders.announced, world.launcher.submitted) == ({}, [])
    assert [entry.action for entry in world.store.audit] == ["job.adopt"]
    world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED, step=7)
    world.rounds()
    job = world[job_id]
    assert (job.state, job.result and job.result.step, job.is_log_saved) == (JobState.SUCCEEDED, 7, True)
    assert world.folders.logs == {(job_id, 1): f"log of {BY_RAY}\n"}
    assert world.launcher.submitted == []


def test_with_keys_it_belongs_to_nobody_who_has_one(world: Found) -> None:
    world.settings = world.settings.model_copy(update={"access": "keys"})
    world.restart()
    job_id = world.announce()
    world.rounds()
    assert (world[job_id].owner, world[job_id].project) == ("ray", "default")


def test_it_can_be_cancelled_and_is_ended_where_it_does_not_listen(world: Found) -> None:
    job_id = world.announce()
    world.rounds()
    world.cancel(job_id)
    world.rounds()
    assert world.folders.controls[job_id].attempt == 1
    world.rounds(seconds=world.settings.cancel_grace_seconds)
    assert (world[job_id].state, world.launcher.stopped) == (JobState.CANCELLED, [BY_RAY])


@pytest.mark.parametrize("is_seen_running", [False, True])
def test_where_it_is_lost_the_service_tries_it_again(world: Found, is_seen_running: bool) -> None:
    job_id = world.announce()
    if is_seen_running:
        world.rounds()
    else:
        world.reconciler._adoption.look()
        assert world[job_id].state is JobState.STARTING
    world.launcher.restart_head()
    world.rounds(seconds=10)
    job = world[job_id]
    assert (job.attempt, job.ray_submission_id, job.state) == (2, f"{job_id}-a2", JobState.RUNNING)
    assert job.failure is not None
    assert job.failure.code == "lost"
    assert world.launcher.submitted == [f"{job_id}-a2"]


def test_of_another_cluster_it_is_let_alone_and_forgotten_at_last(world: Found) -> None:
    job_id = world.announce()
    world.launcher.attempts.clear()
    world.rounds()
    assert (world.store.get(job_id), list(world.folders.announced)) == (None, [job_id])
    world.clock.pass_seconds(adoption.FORGET_AFTER / timedelta(seconds=1) + 1)
    world.rounds()
    assert (world.store.get(job_id), list(world.folders.announced)) == (None, [])


def test_one_that_ended_before_anybody_looked_is_listed_as_it_ended(world: Found) -> None:
    job_id = world.announce()
    world.launcher.attempts.clear()  # a head that was restarted since
    world.folders.results[job_id] = JobResult(state="SUCCEEDED", attempt=1, step=3)
    world.rounds()
    assert (world[job_id].state, world.launcher.submitted) == (JobState.SUCCEEDED, [])


@pytest.mark.parametrize(
    "result",
    [
        JobResult(state="FAILED", failure=Failure(stage="train", code="internal", message="lost", can_retry=True)),
        JobResult(state="PAUSED"),
        JobResult(state="SUCCEEDED", attempt=2),
    ],
)
def test_what_another_cluster_may_go_on_with_is_not_tried_again_here(world: Found, result: JobResult) -> None:
    job_id = world.announce()
    world.launcher.attempts.clear()
    world.folders.results[job_id] = result
    world.rounds()
    assert (world.store.get(job_id), world.launcher.submitted) == (None, [])


def test_it_is_not_paused_for_a_more_urgent_job(world: Found) -> None:
    """Its next attempt would not have the files of its `--working-dir`."""
    job_id = world.announce()
    world.rounds()
    urgent = world.add(priority=10)
    world.rounds()
    assert (world[job_id].state, world[urgent].state) == (JobState.RUNNING, JobState.QUEUED)
    world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED)
    world.rounds()
    assert world[urgent].state is JobState.RUNNING


def test_sent_again_it_is_the_next_attempt_of_the_same_job(world: Found) -> None:
    job_id = world.announce()
    world.rounds()
    world.launcher.set(BY_RAY, AttemptState.STOPPED)
    world.announce(attempt=2, submission="raysubmit_2")
    world.reconciler._adoption.look()
    world.elapsed += adoption.ANNOUNCED_SECONDS
    world.reconciler._adoption.look()
    world.rounds()
    job = world[job_id]
    assert (job.attempt, job.ray_submission_id, job.state) == (2, "raysubmit_2", JobState.RUNNING)
    assert job.submission_of(1) == BY_RAY


def test_of_a_job_that_is_over_the_word_is_deleted(world: Found) -> None:
    job_id = world.add(state=JobState.CANCELLED, attempt=1, finished_at=world.clock(), is_log_saved=True)
    world.announce(job_id, attempt=2)
    world.rounds()
    assert (world[job_id].state, world[job_id].attempt, world.folders.announced) == (JobState.CANCELLED, 1, {})


def test_a_folder_without_a_spec_holds_up_nobody(world: Found) -> None:
    broken, sound = world.announce("a-broken"), world.announce("b-sound", submission="raysubmit_2")
    del world.folders.specs[broken]
    world.rounds()
    assert (world.store.get(broken), world[sound].state) == (None, JobState.RUNNING)
    world.clock.pass_seconds(adoption.FORGET_AFTER / timedelta(seconds=1) + 1)
    world.rounds()
    assert world.folders.announced == {}


def test_a_database_of_before_finds_what_was_started_since(world: Found) -> None:
    before = MemoryJobStore()
    kept = world.add(owner="ann", project="clinical")
    before.insert(world[kept])
    world.rounds()
    world.settings = world.settings.model_copy(update={"max_running_jobs": 2})
    world.launcher.size = Capacity(8, 0)
    world.restart()
    new = world.add(owner="bob", project="law")
    world.rounds()
    assert world.launcher.submitted == [f"{kept}-a1", f"{new}-a1"]

    world.store = before  # the backup
    world.restart()
    world.rounds()
    for job_id, owner, project in ((kept, "ann", "clinical"), (new, "bob", "law")):
        job = world[job_id]
        assert (job.state, job.attempt, job.owner, job.project) == (JobState.RUNNING, 1, owner, project)
        assert not job.is_adopted  # it is the service's own, and may make room for others like any
    assert world.launcher.submitted == [f"{kept}-a1", f"{new}-a1"]
    assert world.launcher.stopped == []


def stray(world: Found, **changes: Any) -> str:
    """A job whose first attempt runs while its row says otherwise; Ray's name for it."""
    job_id = world.running()
    world.store.jobs[job_id] = world[job_id].__class__(**{**vars(world[job_id]), **changes})
    world.rounds()
    return f"{job_id}-a1"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"attempt": 2}, id="a later attempt has its place"),
        pytest.param({"state": JobState.PAUSED, "pause_requested_at": START}, id="the job is paused"),
        pytest.param(
            {"state": JobState.SUCCEEDED, "finished_at": START, "is_log_saved": True},
            id="the job is over",
        ),
    ],
)
def test_an_attempt_that_should_not_be_there_is_stopped(world: Found, changes: dict[str, Any]) -> None:
    name = stray(world, **changes)
    assert world.launcher.stopped == [name]


def test_what_cannot_be_kept_holds_up_no_round(world: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("value too long for type character varying(40)")

    job_id, waiting = world.announce(), world.add()
    monkeypatch.setattr(world.store, "insert", refuse)
    world.rounds()
    assert (world.store.get(job_id), world[waiting].state) == (None, JobState.RUNNING)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"electra.job_uri": "s3://another/jobs/pt-1"}, id="another storage"),
        pytest.param({"electra.attempt": "one"}, id="no number"),
        pytest.param({"electra.attempt": "1" * 5000}, id="a number without end"),
        pytest.param({"electra.job_id": "pt-2"}, id="another job's name"),
    ],
)
def test_what_is_not_ours_is_let_alone(world: Found, changes: dict[str, str]) -> None:
    uri = world.settings.job_uri("pt-1")
    world.folders.specs["pt-1"] = world.folders.specs["pt-2"] = make_job().spec_json
    world.launcher.set("pt-1-a1", AttemptState.RUNNING)
    said = {"electra.job_id": "pt-1", "electra.attempt": "1", "electra.job_uri": uri}
    world.launcher.metadata["pt-1-a1"] = said | changes
    world.rounds()
    assert (world.store.get("pt-1"), world.store.get("pt-2"), world.launcher.stopped) == (None, None, [])
    world.launcher.metadata["pt-1-a1"] = said
    world.rounds()
    assert world["pt-1"].state is JobState.RUNNING
