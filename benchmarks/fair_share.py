"""How long the jobs of three people wait who ask for unequal amounts, and whether a quota was ever exceeded.

The service's own reconciler and store (SQLite) at work on a simulated clock, against a Ray and job folders that are
simulated too: jobs hold what they ask for and end when their time is over. So this says what the queue decides, and
nothing of how fast anything is. Ada hands in all her jobs at the start, Ben one now and then, Eve one seldom.

Each seed is run twice: with three owners, and with all jobs of one owner, which is to take the oldest first and to have
no quotas of owners. From the log of events it is then counted, at each moment, what the running jobs of each owner and
of the project held together.

    python benchmarks/fair_share.py [--quick] [--json PATH]
"""

from __future__ import annotations

import logging
import random
import statistics
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from common import option_parser, report

from pipelines.specs.documents import Control, JobResult, Progress
from pipelines.specs.parsing import dump_spec, resolve_spec
from service.dispatch.reconciler import Reconciler
from service.interfaces import AttemptState, AttemptStatus, Capacity
from service.ledger.database import make_engine, upgrade_database
from service.ledger.events import SqlEventStore
from service.ledger.health import SqlLedgerHealth
from service.ledger.queue_store import SqlQueueStore
from service.ledger.store import SqlJobStore
from service.queueing.demand import Demand
from service.queueing.records import NodeRoom
from service.records import Job
from service.settings import Settings
from service.states import JobState

START = datetime(2026, 1, 1, tzinfo=UTC)
NUM_CPUS = 16
TICK_SECONDS = 20
PAUSE_SECONDS = {"ada": 0.0, "ben": 240.0, "eve": 480.0}
"""Between two jobs of each."""
OWNER_CPUS, PROJECT_CPUS, OWNER_JOBS = 10.0, 14.0, 5
SPEC = dump_spec(resolve_spec({"kind": "pretrain", "preset": "tiny"}))


@dataclass
class Clock:
    """Passes when told to."""

    time: datetime = START

    def __call__(self) -> datetime:
        return self.time


@dataclass
class SimulatedRay:
    """Programs that hold their CPUs until their time is over; and their folders and runs, for it is all one to them."""

    clock: Clock
    jobs: dict[str, tuple[Job, float]]
    started: dict[str, datetime] = field(default_factory=dict)

    def submit(self, launch):
        self.started.setdefault(launch.submission_id, self.clock())

    def status(self, submission_id):
        if submission_id not in self.started:
            return None
        is_over = self.read_result(submission_id.rpartition("-a")[0]) is not None
        return AttemptStatus(AttemptState.SUCCEEDED if is_over else AttemptState.RUNNING)

    def capacity(self):
        held = sum(
            self.jobs[name.rpartition("-a")[0]][0].demand.num_cpus
            for name in self.started
            if self.status(name).state is AttemptState.RUNNING
        )
        return Capacity(NUM_CPUS, 0, (NodeRoom(NUM_CPUS, 0, NUM_CPUS - held, 0),))

    def read_result(self, job_id):
        started = self.started.get(f"{job_id}-a1")
        if started is None or (self.clock() - started).total_seconds() < self.jobs[job_id][1]:
            return None
        return JobResult(state="SUCCEEDED", attempt=1)

    def read_progress(self, job_id):
        return Progress(attempt=1, stage="train", heartbeat_at=START)

    def read_log(self, submission_id):
        return ""

    def stop(self, submission_id):
        raise AssertionError("nothing is to be stopped here")

    def request_stop(self, job_id, action, attempt):
        raise AssertionError(f"nothing is to be stopped here: {Control(action='cancel')}")

    def write_spec(self, job_id, spec_json):
        pass

    def end(self, run_id, state):
        pass

    def close(self):
        pass


def made_jobs(seed: int, per_owner: int) -> list[tuple[Job, float]]:
    """Jobs in the order in which they come, and how long each runs."""
    draw = random.Random(seed)
    jobs = []
    for owner, pause in PAUSE_SECONDS.items():
        for number in range(per_owner):
            job = Job(
                job_id=f"{owner}-{number:02}",
                name=owner,
                kind="pretrain",
                spec_json=SPEC,
                spec_sha256="",
                created_at=START + timedelta(seconds=number * pause),
                demand=Demand(cpus_per_worker=draw.choice([1.0, 2.0, 4.0])),
                owner=owner,
            )
            jobs.append((job, draw.uniform(240, 960)))
    return sorted(jobs, key=lambda one: (one[0].created_at, one[0].job_id))


def simulate(seed: int, per_owner: int, is_fair: bool, folder: Path) -> tuple[dict[str, list[float]], float]:
    """Seconds that each owner's jobs waited, and until the last job ended. Quotas are held to the events."""
    settings = Settings(
        home=folder,
        max_running_jobs=100,
        # With one owner for all there is no quota of one of three, and the project's stays.
        quota_owner_cpus=OWNER_CPUS if is_fair else None,
        quota_owner_running_jobs=OWNER_JOBS if is_fair else None,
        quota_project_cpus=PROJECT_CPUS,
    )
    engine = make_engine(settings.database_url)
    upgrade_database(engine)
    store, clock = SqlJobStore(engine), Clock()
    jobs = made_jobs(seed, per_owner)
    ray = SimulatedRay(clock, {job.job_id: (job, seconds) for job, seconds in jobs})
    reconciler = Reconciler(store, ray, ray, ray, settings, queue=SqlQueueStore(engine), now=clock)
    coming = [job if is_fair else Job(**{**job.__dict__, "owner": "all"}) for job, _ in jobs]
    waited: dict[str, list[float]] = {owner: [] for owner in PAUSE_SECONDS}
    num_over = 0
    while num_over < len(jobs):
        while coming and coming[0].created_at <= clock():
            store.insert(coming.pop(0))
        reconciler.run_round()
        reconciler.run_round()  # a round admits, and the next one submits
        clock.time += timedelta(seconds=TICK_SECONDS)
        num_over = SqlLedgerHealth(engine).job_figures().counts.get(JobState.SUCCEEDED, 0)
    for job, _ in jobs:
        started = store.get(job.job_id).started_at
        waited[job.name].append((started - job.created_at).total_seconds())
    check_quotas(SqlEventStore(engine), ray, is_fair)
    store.close()
    return waited, (clock() - START).total_seconds()


def check_quotas(events: SqlEventStore, ray: SimulatedRay, is_fair: bool) -> None:
    """Replay the log of events: after each of them, what runs keeps to every quota and to the cluster."""
    holding: set[str] = set()
    after = num_changes = 0
    while page := events.read_events(after, 500).events:
        for event in page:
            after = event.seq
            if event.type != "state":
                continue
            state = JobState(event.payload["state"])
            (holding.add if state.is_active else holding.discard)(event.job_id)
            num_changes += 1
            held = [ray.jobs[job_id][0] for job_id in holding]
            total = sum(job.demand.num_cpus for job in held)
            assert total <= min(PROJECT_CPUS, NUM_CPUS), f"event {after}: the project holds {total} CPUs"
            for owner in PAUSE_SECONDS if is_fair else ():
                mine = [job.demand.num_cpus for job in held if job.owner == owner]
                assert sum(mine) <= OWNER_CPUS, f"event {after}: {owner} holds {sum(mine)} CPUs"
                assert len(mine) <= OWNER_JOBS, f"event {after}: {owner} runs {len(mine)} jobs"
    assert num_changes >= 3 * len(ray.jobs), "not all jobs are in the log of events"
    assert not holding, "some jobs have not ended in the log of events"


def main() -> None:
    options = option_parser(__doc__, "6 jobs each instead of 30").parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    per_owner, seeds = 6 if options.quick else 30, [0]
    figures: dict[str, float] = {}
    details: dict[str, object] = {"jobs_per_owner": per_owner, "seeds": seeds, "num_cpus": NUM_CPUS}
    means: dict[tuple[str, str], float] = {}
    print(f"{'':8} {'owner':6} {'median':>8} {'mean':>8} {'longest':>8}   minutes from creation to the first start")
    for name, is_fair in (("fair", True), ("oldest", False)):
        waited: dict[str, list[float]] = {owner: [] for owner in PAUSE_SECONDS}
        lengths = []
        for seed in seeds:
            with tempfile.TemporaryDirectory(prefix="electra-fair-share-") as folder:
                told, length = simulate(seed, per_owner, is_fair, Path(folder))
            lengths.append(length)
            for owner, seconds in told.items():
                waited[owner] += seconds
        for owner, seconds in waited.items():
            median, mean, longest = statistics.median(seconds), statistics.mean(seconds), max(seconds)
            print(f"{name:8} {owner:6} {median / 60:8.1f} {mean / 60:8.1f} {longest / 60:8.1f}")
            means[name, owner] = mean
            details[f"{name}_{owner}_wait_seconds"] = {"median": median, "mean": mean, "most": longest}
        details[f"{name}_seconds_to_the_end"] = lengths
    for owner in PAUSE_SECONDS:
        figures[f"fair_share_wait_{owner}"] = means["fair", owner] / max(means["oldest", owner], 1.0)
    report(figures, details, options.json)


if __name__ == "__main__":
    main()
