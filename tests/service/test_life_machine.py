"""Any wishes, faults and deaths in any order: the real store and the real reconciler keep to the table of states."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from service_doubles import FakeLauncher, Killed, Killer, MemoryFolders, MemoryRuns
from service_world import World

from pipelines.specs.documents import Failure
from service.interfaces import AttemptState, JobFilter
from service.ledger.database import make_engine, upgrade_database
from service.ledger.store import SqlJobStore
from service.records import Job
from service.settings import Settings
from service.states import TRANSITIONS, JobState, can_move

FAILURES = {
    "passing": Failure(stage="train", code="internal", message="a node was lost", can_retry=True),
    "final": Failure(stage="train", code="out_of_memory", message="8 GiB"),
}
WISHES = ("cancel", "kill", "pause", "resume")


class Watched(SqlJobStore):
    """The real store, with every move it makes held against the table."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.moves: list[tuple[JobState, JobState]] = []

    def update(self, job: Job, **changes: Any) -> Job:
        updated = super().update(job, **changes)
        if updated.state is not job.state or updated.attempt != job.attempt:
            self.moves.append((job.state, updated.state))
        return updated


class LifeOfJobs(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.scratch = tempfile.TemporaryDirectory()
        home = Path(self.scratch.name)
        self.settings = Settings(home=home, max_running_jobs=2, starting_timeout_seconds=600)
        engine = make_engine(self.settings.database_url)
        upgrade_database(engine)
        self.store = Watched(engine)
        self.world = World(
            self.settings, store=self.store, launcher=FakeLauncher(), folders=MemoryFolders(), runs=MemoryRuns()
        )
        self.ids: list[str] = []
        self.last: dict[str, Job] = {}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.check_every_job_can_end()
            self.store.close()
            self.scratch.cleanup()

    @rule(priority=st.integers(-100, 100))
    @precondition(lambda self: len(self.ids) < 4)
    def submit(self, priority: int) -> None:
        self.ids.append(self.world.add(priority=priority))

    @rule(index=st.integers(0, 3), wish=st.sampled_from(WISHES))
    def wish(self, index: int, wish: str) -> None:
        if index < len(self.ids):
            getattr(self.world, wish)(self.ids[index])

    @rule(seconds=st.sampled_from([0, 1, 20, 60, 400]), number=st.integers(1, 4))
    def reconcile(self, seconds: int, number: int) -> None:
        self.world.rounds(number, seconds)

    @rule(at=st.integers(0, 25), seconds=st.sampled_from([0, 20]))
    def reconciler_dies(self, at: int, seconds: int) -> None:
        self.world.reconciler = self.world.new_reconciler(Killer(at))
        with contextlib.suppress(Killed):
            self.world.rounds(2, seconds)
        self.world.restart()

    @rule(is_down=st.booleans())
    def ray_goes_and_comes(self, is_down: bool) -> None:
        self.world.launcher.is_down = is_down

    @rule()
    def head_is_restarted(self) -> None:
        self.world.launcher.restart_head()

    @rule(
        index=st.integers(0, 3),
        word=st.sampled_from(["SUCCEEDED", "PAUSED", "CANCELLED", "passing", "final", "nothing"]),
        has_left=st.booleans(),
    )
    def an_attempt_speaks(self, index: int, word: str, has_left: bool) -> None:
        if index >= len(self.ids):
            return
        job_id = self.ids[index]
        job = self.world[job_id]
        if job.attempt == 0 or job.ray_submission_id not in self.world.launcher.attempts:
            return
        ray = AttemptState.FAILED if has_left else self.world.launcher.attempts[job.ray_submission_id].state
        if word == "nothing":
            self.world.launcher.set(job.ray_submission_id, ray)
        elif word in FAILURES:
            self.world.end(job_id, "FAILED", ray, failure=FAILURES[word])
        else:
            self.world.end(job_id, word, ray)

    @invariant()
    def moves_are_in_the_table(self) -> None:
        for before, after in getattr(self, "store", Watched).__dict__.get("moves", ()):
            assert can_move(before, after), f"{before} became {after}"

    @invariant()
    def what_is_over_stays_as_it_is(self) -> None:
        for job_id in getattr(self, "ids", ()):
            job, before = self.world[job_id], self.last.get(job_id)
            if before is not None and before.state.is_terminal:
                assert (job.state, job.attempt, job.finished_at) == (before.state, before.attempt, before.finished_at)
            if before is not None:
                assert job.attempt >= before.attempt
                assert job.running_seconds >= before.running_seconds
            self.last[job_id] = job

    @invariant()
    def no_attempt_starts_twice_and_none_beside_another(self) -> None:
        if not hasattr(self, "world"):
            return
        assert self.store.count_active() <= self.settings.max_running_jobs
        for job_id in self.ids:
            job = self.world[job_id]
            if job.state in (JobState.PAUSED, JobState.QUEUED):
                told = self.world.launcher.attempts.get(job.ray_submission_id or "")
                assert told is None or told.state.is_terminal, f"{job.state} while its process runs"

    def check_every_job_can_end(self) -> None:
        """Whatever has happened: asked to stop, everything comes to its end."""
        self.world.launcher.is_down = False
        for job_id in self.ids:
            self.world.cancel(job_id)
        self.world.restart()
        self.world.rounds(12, seconds=60)
        for job_id in self.ids:
            job = self.world[job_id]
            assert job.state.is_terminal, job
            assert not TRANSITIONS[job.state]
        assert self.store.list_unsettled() == []
        assert len(self.store.page(JobFilter())) == len(self.ids)


LifeOfJobs.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestLifeOfJobs = LifeOfJobs.TestCase
