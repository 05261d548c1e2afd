"""What attempts took: written down as jobs move, and added up to the same sums however it is cut."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from alembic import command
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from service_doubles import START, Clock, make_job
from sqlalchemy import Engine, text

from pipelines.specs.documents import JobResult, Progress
from pipelines.specs.parsing import resolve_spec
from pipelines.specs.plan import plan_job
from pipelines.specs.search import SearchSpec
from service.jobs.work import Work, resources_of, work_of
from service.ledger.database import migrations_config
from service.ledger.store import SqlJobStore
from service.ledger.usage import SqlUsageStore
from service.ledger.usage_repair import Mended, UsageRepair
from service.queueing.reckoning import demand_of
from service.records import Job
from service.shelf.usage import DAY_MS, Dimension, Usage, UsedAttempt, add_up
from service.states import JobState

NAMES = st.sampled_from(["a", "b"])
DIMENSIONS: list[Dimension] = ["owner", "project", "kind", "day"]
START_MS = int(START.timestamp() * 1000)
HOUR_MS = 3_600_000


GPU = {"num_workers": 8, "cpus_per_worker": 2, "gpus_per_worker": 1}
TASK = {"type": "classification", "data": {"train": "a.csv", "validation": "b.csv"}}
HELD: list[dict[str, Any]] = [
    {"kind": "pretrain", "preset": "tiny", "compute": GPU},
    {
        "kind": "finetune",
        "name": "n",
        "model": {"type": "registered", "name": "m"},
        "task": TASK,
        "training": {"seeds": [1, 2, 3]},
        "compute": GPU,
    },
    {
        "kind": "search",
        "preset": "lambda",
        "base": {"preset": "tiny", "compute": {**GPU, "num_workers": 2}},
        "objective": {"type": "fixed_corruption"},
        "budget": {"flops": 4e12},
        "compute": {"max_concurrent_trials": 3},
    },
]


@st.composite
def attempts(draw: Any) -> list[UsedAttempt]:
    made = []
    for number in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, 5 * DAY_MS))
        length = draw(st.integers(1, 3 * DAY_MS))
        made.append(
            UsedAttempt(
                job_id=str(number),
                project=draw(NAMES),
                owner=draw(NAMES),
                kind=draw(NAMES),
                started_ms=start,
                ended_ms=start + length,
                is_first=draw(st.booleans()),
                num_millicpus=draw(st.integers(0, 64_000)),
                num_gpus=draw(st.integers(0, 8)),
                job_ms=length + draw(st.integers(0, DAY_MS)),
                tokens=draw(st.integers(0, 10**12)),
                flops=draw(st.floats(0, 1e21)),
            )
        )
    return made


def summed(rows: list[Usage]) -> tuple[float, ...]:
    names = ("cpu_hours", "gpu_hours", "flops", "tokens", "jobs", "attempts")
    return tuple(sum(getattr(row, name) for row in rows) for name in names)


@given(attempts(), st.lists(st.sampled_from(DIMENSIONS), unique=True), st.integers(0, 9 * DAY_MS))
@effort(max_examples=200, deadline=None)
def test_sums_are_the_same_however_they_are_grouped_and_cut(
    made: list[UsedAttempt], by: list[Dimension], cut: int
) -> None:
    whole = summed(add_up(made, 0, 9 * DAY_MS, ()))
    assert summed(add_up(made, 0, 9 * DAY_MS, by)) == pytest.approx(whole, rel=1e-9)
    halves = add_up(made, 0, cut, by) + add_up(made, cut, 9 * DAY_MS, by)
    assert summed(halves) == pytest.approx(whole, rel=1e-9)


def test_a_day_has_what_ran_in_it() -> None:
    one = {"job_id": "j", "project": "p", "owner": "o", "kind": "pretrain", "is_first": True}
    used = UsedAttempt(**one, started_ms=DAY_MS - HOUR_MS, ended_ms=DAY_MS + 3 * HOUR_MS, job_ms=4 * HOUR_MS,
                       num_millicpus=2000, num_gpus=1, tokens=400, flops=4.0)  # fmt: skip
    days = add_up([used], 0, 9 * DAY_MS, ("day",))
    assert [(row.group["day"], row.cpu_hours, row.gpu_hours, row.tokens, row.jobs) for row in days] == [
        ("1970-01-01", 2.0, 1.0, 100.0, 1),
        ("1970-01-02", 6.0, 3.0, 300.0, 0),
    ]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def clocked(engine: Engine, clock: Clock) -> SqlJobStore:
    return SqlJobStore(engine, now=clock)


@pytest.fixture
def read(engine: Engine) -> Callable[..., list[UsedAttempt]]:
    def read(hours: float = 100, projects: frozenset[str] | None = None) -> list[UsedAttempt]:
        now = START_MS + int(hours * HOUR_MS)
        found = SqlUsageStore(engine).used_attempts(START_MS - DAY_MS, now, now, projects)
        return sorted(found, key=lambda one: one.started_ms)

    return read


def run(store: SqlJobStore, clock: Clock, job: Job, **after: Any) -> Job:
    """An attempt that runs for an hour, and what becomes of it."""
    job = store.update(job, state=JobState.STARTING, attempt=job.attempt + 1)
    job = store.update(job, state=JobState.RUNNING, started_at=clock(), heartbeat_seen_at=clock())
    clock.pass_seconds(3600)
    return store.update(job, **after)


def test_attempts_count_while_they_run_and_pauses_do_not(
    clocked: SqlJobStore, clock: Clock, read: Callable[..., list[UsedAttempt]]
) -> None:
    job = make_job(project="clinical", owner="ada")
    clocked.insert(job)
    job = run(clocked, clock, job, state=JobState.PAUSED)
    clock.pass_seconds(7200)
    job = run(clocked, clock, clocked.update(job, state=JobState.QUEUED), progress=Progress(heartbeat_at=START, step=5))
    found = read(5)
    assert [(hours(one), one.is_first, one.owner) for one in found] == [(1.0, True, "ada"), (2.0, False, "ada")]
    assert {one.job_ms for one in found} == {3 * HOUR_MS}
    assert {one.tokens for one in found} == {work_of(job.spec_json, job.progress, None).tokens}
    assert found[0].tokens > 0
    assert read(5, frozenset({"law"})) == []


def hours(one: UsedAttempt) -> float:
    return (one.ended_ms - one.started_ms) / HOUR_MS


def test_an_attempt_ends_when_the_job_says_so_and_not_when_somebody_looks(
    clocked: SqlJobStore, clock: Clock, read: Callable[..., list[UsedAttempt]]
) -> None:
    """The service was down while the job ended."""
    job = make_job()
    clocked.insert(job)
    result = JobResult(state="SUCCEEDED", attempt=1, finished_at=START + timedelta(minutes=30))
    run(clocked, clock, job, state=JobState.SUCCEEDED, finished_at=clock(), result=result)
    assert [one.ended_ms - one.started_ms for one in read()] == [HOUR_MS / 2]


def test_an_attempt_that_follows_a_lost_one_is_another(
    clocked: SqlJobStore, clock: Clock, read: Callable[..., list[UsedAttempt]]
) -> None:
    job = make_job()
    clocked.insert(job)
    job = run(clocked, clock, job, state=JobState.STARTING, attempt=2)
    clocked.update(job, started_at=START)  # it ended between two looks
    clocked.update(clocked.get(job.job_id) or job, state=JobState.FAILED)
    assert [one.ended_ms - one.started_ms for one in read()] == [HOUR_MS, 1]
    assert [one.attempt for one in SqlUsageStore(clocked._engine).attempts_of(job.job_id)] == [1, 2]


def test_what_a_job_holds_is_what_its_spec_asks_for() -> None:
    spec = resolve_spec({"kind": "pretrain", "preset": "tiny", "compute": {"num_workers": 4, "cpus_per_worker": 0.5}})
    assert resources_of(spec.model_dump_json()).num_millicpus == 2000
    objective = {"type": "fixed_corruption"}
    base = {"preset": "tiny", "compute": {"num_workers": 1, "gpus_per_worker": 1}}
    document = {"kind": "search", "preset": "lambda", "base": base, "objective": objective, "budget": {"flops": 4e12}}
    search = resolve_spec({**document, "compute": {"max_concurrent_trials": 2}})
    assert isinstance(search, SearchSpec)
    assert (resources_of(search.model_dump_json()).num_gpus, search.most_trials >= 2) == (2, True)


def test_a_finished_job_has_the_flops_of_its_plan() -> None:
    spec = resolve_spec({"kind": "pretrain", "preset": "tiny"})
    plan = plan_job(spec)  # type: ignore[arg-type]
    result = JobResult(state="SUCCEEDED", step=10**9, corpus={"vocab_size": plan.vocab_size})
    work = work_of(spec.model_dump_json(), None, result)
    assert (work.tokens, work.flops) == (plan.total_tokens, pytest.approx(plan.total_flops))


@pytest.mark.parametrize("document", HELD, ids=lambda document: str(document["kind"]))
def test_usage_and_the_queue_reckon_alike_what_a_job_holds(document: dict[str, Any]) -> None:
    spec = resolve_spec(document)
    demand, held = demand_of(spec), resources_of(spec.model_dump_json())
    assert (held.num_millicpus, held.num_gpus) == (1000 * demand.num_cpus, demand.num_gpus)
    assert held.num_gpus == {"pretrain": 8, "finetune": 3, "search": 6}[document["kind"]]


def test_what_a_retry_took_over_counts_once() -> None:
    """With the job that computed it; so both together are as much as one that ran through."""
    spec = resolve_spec({"kind": "pretrain", "preset": "tiny"}).model_dump_json()
    whole = work_of(spec, Progress(heartbeat_at=START, step=100), None)
    old = work_of(spec, Progress(heartbeat_at=START, step=60), None)
    for said in (
        work_of(spec, Progress(heartbeat_at=START, step=100, taken_over_step=60), None),
        work_of(spec, None, JobResult(state="CANCELLED", step=100, taken_over_step=60)),
    ):
        assert (old.tokens + said.tokens, old.flops + said.flops) == (whole.tokens, pytest.approx(whole.flops))
    assert work_of(spec, Progress(heartbeat_at=START, step=60, taken_over_step=60), None) == Work()


def test_jobs_of_before_are_taken_over(engine: Engine) -> None:
    """One attempt each, as long as was written down; one that runs goes on to count."""
    config = migrations_config()
    columns = (
        "job_id, name, kind, spec_json, spec_sha256, created_at, state, attempt, is_log_saved, started_at, "
        "running_seconds, progress"
    )
    compute = '{"kind": "pretrain", "compute": {"num_workers": 2, "cpus_per_worker": 0.5, "gpus_per_worker": 1}}'
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0004")
        for job_id, state in (("pt-1", "SUCCEEDED"), ("pt-2", "RUNNING")):
            values = (
                f"'{job_id}', 'n', 'pretrain', '{compute}', 'x', '2026-01-01', '{state}', 1, false, "
                "'2026-01-01 00:00:00', 60.0, '{\"tokens\": 7}'"
            )
            connection.execute(text(f"INSERT INTO jobs ({columns}) VALUES ({values})").bindparams())
        command.upgrade(config, "head")
    now = int(datetime.now(UTC).timestamp() * 1000)
    found = sorted(SqlUsageStore(engine).used_attempts(0, now, now, None), key=lambda one: one.job_id)
    assert [(one.num_millicpus, one.num_gpus, one.tokens) for one in found] == [(1000, 2, 7)] * 2
    assert found[0].ended_ms - found[0].started_ms == 60_000
    assert found[1].started_ms <= now - 60_000


LEFT = {
    "it ended": ("state = 'FAILED', finished_at = '2026-01-01 03:00:00'", 3.0),
    "it was paused": ("state = 'PAUSED', heartbeat_seen_at = '2026-01-01 02:30:00'", 2.5),
    "nobody knows when": ("state = 'QUEUED', heartbeat_seen_at = NULL", 1 / HOUR_MS),
    "another attempt began": (
        "attempt = 2, running_seconds = 7200, run_started_at = '2026-01-01 04:00:00', state = 'STARTING'",
        2.0,
    ),
}


@pytest.mark.parametrize("left", LEFT)
def test_an_attempt_that_an_older_leader_ended_counts_no_longer(
    engine: Engine, clocked: SqlJobStore, clock: Clock, read: Callable[..., list[UsedAttempt]], left: str
) -> None:
    """It knew nothing of usage, and changed the job's row alone."""
    job = make_job()
    clocked.insert(job)
    run(clocked, clock, job, heartbeat_seen_at=clock())
    changed, expected = LEFT[left]
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE jobs SET {changed}"))
    assert [hours(one) for one in read(50)] == [50.0]
    assert UsageRepair(engine).run() == Mended(ended=1)
    assert [hours(one) for one in read(50)] == [expected]
    assert UsageRepair(engine).run() == Mended()


def test_an_attempt_that_an_older_leader_began_counts(
    engine: Engine, clocked: SqlJobStore, clock: Clock, read: Callable[..., list[UsedAttempt]]
) -> None:
    job = make_job()
    clocked.insert(job)
    changed = "state = 'RUNNING', attempt = 1, started_at = '2026-01-01', run_started_at = '2026-01-01'"
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE jobs SET {changed}"))
    assert UsageRepair(engine).run() == Mended(begun=1)
    assert [(hours(one), one.num_millicpus > 0) for one in read(5)] == [(5.0, True)]
    assert UsageRepair(engine).run() == Mended()


def test_nothing_is_mended_of_jobs_whose_leader_knows_usage(engine: Engine, clocked: SqlJobStore, clock: Clock) -> None:
    for after in ({"state": JobState.FAILED}, {"state": JobState.PAUSED}, {"heartbeat_seen_at": START}):
        job = make_job()
        clocked.insert(job)
        run(clocked, clock, job, **after)
    assert UsageRepair(engine).run() == Mended()
