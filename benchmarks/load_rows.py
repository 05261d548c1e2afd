"""The rows of `load.py`: many jobs and events, made by the database itself out of a few that the store has written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from contenders.bare_api import TABLE
from sqlalchemy import Engine, text

from pipelines.specs.documents import JobResult, Progress
from pipelines.specs.parsing import dump_spec, resolve_spec
from service.ledger.store import SqlJobStore
from service.ledger.tables import JobRow
from service.records import Job
from service.states import JobState

SPEC = {"kind": "pretrain", "preset": "tiny"}
SHARES = {JobState.SUCCEEDED: 0.90, JobState.FAILED: 0.06, JobState.CANCELLED: 0.04}
"""Of the jobs. None of them waits or runs: what is measured is the desk."""
FOLLOWED_ID = "pt-followed"
_FIGURES = {f"discriminator_{name}": 0.5 for name in ("auc", "accuracy", "loss", "precision", "recall")}


def made_job(job_id: str, state: JobState, created_at: datetime) -> Job:
    """A job with what a training leaves in its row."""
    spec = dump_spec(resolve_spec(SPEC))
    progress = Progress(
        stage="train",
        message="training",
        fraction=0.5,
        step=500,
        num_train_steps=1000,
        tokens=10**6,
        tokens_per_second=1e4,
        losses={"generator_loss": 5.0, "discriminator_loss": 0.2},
        evaluation=_FIGURES,
        heartbeat_at=created_at,
    )
    result = JobResult(state="SUCCEEDED", step=1000, evaluation=_FIGURES, baselines=_FIGURES, finished_at=created_at)
    return Job(
        job_id=job_id,
        name="load",
        kind="pretrain",
        spec_json=spec,
        spec_sha256=hashlib.sha256(spec.encode()).hexdigest(),
        created_at=created_at,
        state=state,
        attempt=1,
        started_at=created_at,
        finished_at=created_at if state.is_terminal else None,
        is_log_saved=state.is_terminal,
        progress=progress,
        result=result if state is JobState.SUCCEEDED else None,
        labels={"team": "nlp"},
    )


def fill(engine: Engine, num_jobs: int, num_events: int) -> Job:
    """Fill an empty database of the newest form, and the bare contender's table beside it; the job to follow."""
    store, now = SqlJobStore(engine), datetime.now(UTC)
    followed = made_job(FOLLOWED_ID, JobState.RUNNING, now)
    store.insert(followed)
    for state, share in SHARES.items():
        first = made_job(f"pt-load-{state.lower()}-0000000", state, now - timedelta(days=1))
        store.insert(first)
        _multiply(engine, first, round(num_jobs * share) - 1)
    with engine.begin() as connection:
        last_seq = connection.scalar(text("SELECT last_seq FROM event_counter")) or 0
        connection.execute(
            text(
                "INSERT INTO events (seq, at, job_id, project, type, payload) SELECT :first + n, timezone('utc', now())"
                " - interval '1 day' + n * interval '1 millisecond', 'pt-load-succeeded-' || lpad((n % :jobs)::text, 7,"
                ' \'0\'), \'default\', \'progress\', \'{"attempt": 1, "stage": "train", "message": "training", '
                '"fraction": 0.5, "num_train_steps": 1000, "step": \' || n || \'}\' FROM generate_series(1, :many) n'
            ),
            {"first": last_seq, "jobs": num_jobs, "many": num_events},
        )
        connection.execute(text("UPDATE event_counter SET last_seq = last_seq + :many"), {"many": num_events})
        TABLE.create(connection)
        columns = ", ".join(TABLE.columns.keys())
        connection.execute(text(f"INSERT INTO bare_jobs ({columns}) SELECT {columns} FROM jobs"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))  # as the server does by itself, a while later
    return followed


def _multiply(engine: Engine, first: Job, times: int) -> None:
    """As many more of a job, each a minute older than the one before, with its label."""
    number = "lpad(n::text, 7, '0')"
    changed = {
        "job_id": f"substr(job_id, 1, length(job_id) - 7) || {number}",
        "created_at": "created_at - n * interval '1 minute'",
        "owner": "'owner-' || (n % 20)",
    }
    _copy(engine, "jobs", JobRow.__table__.columns.keys(), changed, first.job_id, times)
    del changed["owner"]
    _copy(engine, "job_labels", ["job_id", "key", "value", "created_at"], changed, first.job_id, times)


def _copy(engine: Engine, table: str, columns: Sequence[str], changed: dict[str, str], job_id: str, times: int) -> None:
    values = ", ".join(changed.get(column, column) for column in columns)
    statement = (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table}, generate_series(1, :times) n"
        " WHERE job_id = :job_id"
    )
    with engine.begin() as connection:
        connection.execute(text(statement), {"times": times, "job_id": job_id})
