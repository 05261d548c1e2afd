"""What became of the jobs, from the log of events and from what programs wrote themselves; the service is not asked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import mlflow
from chaos_world import Lifetime
from mlflow.entities import Run
from sqlalchemy import Engine

from pipelines.specs.documents import RESULT_FILE, TENURES_FOLDER, JobResult, Tenure
from service.feeds.records import EventType, JobEvent
from service.ledger.events import SqlEventStore
from service.states import JobState

_CURVE = "train/generator_loss"


@dataclass
class Verdict:
    """Ids of jobs, by what is wrong with them; all are empty where nothing is."""

    lost: list[str] = field(default_factory=list)
    """Acknowledged, and without a trace, or ended without having succeeded."""
    stuck: list[str] = field(default_factory=list)
    """Not at their end when the time was over."""
    twice: list[str] = field(default_factory=list)
    """Two processes worked for them at once."""
    unasked: list[str] = field(default_factory=list)
    """There, though nobody was told of them: one request made two jobs."""
    lawless: list[str] = field(default_factory=list)
    """Moved on from their end, or back to an earlier attempt."""
    other_weights: list[str] = field(default_factory=list)
    """Their files differ from those of the undisturbed run in some bit."""
    other_runs: list[str] = field(default_factory=list)
    """Not of one run in MLflow that is finished, or a figure is recorded twice."""
    num_attempts: int = 0
    num_tenures: int = 0
    longest_side_by_side_seconds: float = 0.0
    """Two processes of one job alive at once, one of them waiting for the other's end before it begins to work."""

    @property
    def faults(self) -> dict[str, list[str]]:
        """The lists."""
        return {name: value for name, value in vars(self).items() if isinstance(value, list)}


def judge(
    acknowledged: Sequence[str],
    engine: Engine,
    lifetimes: Sequence[Lifetime],
    jobs_folder: Path,
    mlflow_url: str,
    reference: Mapping[str, str],
) -> Verdict:
    """Look at everything once all is over.

    Args:
        acknowledged: ids that were answered with 202.
        engine: of the service's database.
        lifetimes: of all drivers, as the observer saw them.
        jobs_folder: where the folders of the jobs lie.
        mlflow_url: of the server.
        reference: `weights_of` the undisturbed run.
    """
    verdict = Verdict()
    events = _state_events(engine)
    verdict.unasked = sorted(set(events) - set(acknowledged))
    records = _runs_by_job(mlflow_url)
    for job_id in acknowledged:
        told = events.get(job_id, [])
        states = [JobState(event.payload["state"]) for event in told]
        attempts = [int(event.payload.get("attempt", 0)) for event in told]  # none of a new one
        verdict.num_attempts += max(attempts, default=0)
        if states and not states[-1].is_terminal:
            verdict.stuck.append(job_id)
            continue
        if not states or states[-1] is not JobState.SUCCEEDED:
            verdict.lost.append(job_id)
            continue
        if any(state.is_terminal for state in states[:-1]) or attempts != sorted(attempts):
            verdict.lawless.append(job_id)
        folder = jobs_folder / job_id
        if weights_of(folder) != reference:
            verdict.other_weights.append(job_id)
        if not _is_recorded_once(mlflow_url, records.get(job_id, []), folder):
            verdict.other_runs.append(job_id)
    for job_id in acknowledged:
        intervals = working_intervals(jobs_folder / job_id, lifetimes)
        verdict.num_tenures += len(intervals)
        if is_at_once(intervals):
            verdict.twice.append(job_id)
        alive = sorted((one.first_seen, one.last_seen) for one in lifetimes if one.driver.job_id == job_id)
        for before, after in pairwise(alive):
            overlap = min(before[1], after[1]) - after[0]
            verdict.longest_side_by_side_seconds = max(verdict.longest_side_by_side_seconds, overlap)
    return verdict


def working_intervals(folder: Path, lifetimes: Sequence[Lifetime]) -> list[tuple[float, float]]:
    """From when until when each process worked for a job, in order: by its own word, and of one that was killed until
    it was seen last. One that nobody saw is counted as working on for ever.
    """
    intervals = []
    for path in sorted((folder / TENURES_FOLDER).glob("*.json")):
        tenure = Tenure.model_validate_json(path.read_bytes())
        began = tenure.began_at.timestamp()
        if tenure.ended_at is not None:
            intervals.append((began, tenure.ended_at.timestamp()))
            continue
        seen = [
            one.last_seen
            for one in lifetimes
            if one.driver.pid == tenure.pid
            and one.driver.job_id == folder.name
            and one.first_seen - 5 < began < one.last_seen + 5
        ]
        intervals.append((began, max(seen, default=float("inf"))))
    return sorted(intervals)


def is_at_once(intervals: Sequence[tuple[float, float]]) -> bool:
    """Whether any two overlap; they are in the order of their beginnings."""
    return any(after[0] < before[1] for before, after in pairwise(intervals))


def weights_of(folder: Path) -> dict[str, str]:
    """SHA-256 of each exported network of a job."""
    files = sorted((folder / "exports").glob("*/model.safetensors"))
    return {path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _state_events(engine: Engine) -> dict[str, list[JobEvent]]:
    store, after = SqlEventStore(engine), 0
    found: dict[str, list[JobEvent]] = {}
    while page := store.read_events(after, 500).events:
        for event in page:
            after = event.seq
            if event.type in (EventType.CREATED, EventType.STATE):
                found.setdefault(event.job_id, []).append(event)
    return found


def _runs_by_job(mlflow_url: str) -> dict[str, list[Run]]:
    client = mlflow.MlflowClient(mlflow_url)
    experiments = [one.experiment_id for one in client.search_experiments()]
    found: dict[str, list[Run]] = {}
    token = None
    while True:
        page = client.search_runs(experiments, max_results=500, page_token=token)
        for run in page:
            found.setdefault(run.data.tags.get("electra.job_id", ""), []).append(run)
        token = page.token
        if not token:
            return found


def _is_recorded_once(mlflow_url: str, runs: Sequence[Run], folder: Path) -> bool:
    result = JobResult.model_validate_json((folder / RESULT_FILE).read_bytes())
    if len(runs) != 1 or runs[0].info.run_id != result.mlflow_run_id or runs[0].info.status != "FINISHED":
        return False
    history = mlflow.MlflowClient(mlflow_url).get_metric_history(runs[0].info.run_id, _CURVE)
    steps = [metric.step for metric in history]
    return bool(steps) and len(steps) == len(set(steps))
