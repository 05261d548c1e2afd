"""An upgrade with jobs in every state: does the new service take over what the old one left, and is it ever away?

Two replicas of an earlier commit's service on PostgreSQL, with MLflow and a Ray head of that commit, and jobs that are
over, running, paused and waiting. Then, as a rolling upgrade does it, one replica after the other is stopped and
started from this checkout; Ray stays as it is, and with it the jobs on it. At the end all must have succeeded, with the
weights of an undisturbed run, none of them twice, and those that ran in the attempt that they were in.

    python benchmarks/upgrade.py [--quick] [--before REVISION] [--home PATH] [--json PATH]

Needs git, and `pip install pgserver` or PostgreSQL on the path.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
import structlog
from chaos import made_spec
from chaos_verdict import judge, weights_of
from chaos_world import World
from common import option_parser, report
from service_process import ROOT

from service.client import ElectraClient
from service.http.schemas import JobDetail
from service.ledger.database import make_engine

NUM_CPUS = 2
"""Of Ray: so many jobs of one worker run at once."""
NUM_STEPS = 6000
"""Enough that a job runs from before the upgrade until after it."""
WAIT_SECONDS = 600.0
POLL_SECONDS = 0.1


@dataclass
class Availability:
    """What a client saw that asked for the list of jobs all the while, of one replica or else the other."""

    num_requests: int = 0
    num_refused_by_one: int = 0
    """Where the other replica answered."""
    away_seconds: list[float] = field(default_factory=list)
    """Neither answered, from the first such request to the next answer."""


def main() -> None:
    options = _options()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    home = options.home or Path(tempfile.mkdtemp(prefix="electra-upgrade-home-"))
    home.mkdir(parents=True, exist_ok=True)
    try:
        with _checkout(options.before) as (before, revision):
            is_sound = _run(home, before, revision, options.json)
    finally:
        if options.home is None:
            shutil.rmtree(home, ignore_errors=True)
    sys.exit(0 if is_sound else 1)


def _run(home: Path, before: Path, revision: str, json_path: Path | None) -> bool:
    spec = made_spec(home)
    spec["training"] = {**spec["training"], "num_train_steps": NUM_STEPS}
    started = time.monotonic()
    with World(home, NUM_CPUS, before) as world:
        _tell(started, f"two replicas of {revision} are up")
        with ElectraClient(world.url(world.replicas[0]), timeout_seconds=15.0) as client:
            over = client.submit(spec).job_id
            _wait_for(client, over, lambda job: job.state.is_terminal)
            reference = weights_of(world.storage / "jobs" / over)
            if not reference:
                raise SystemExit(f"the undisturbed run did not succeed: {client.job(over)}")
            paused = client.submit(spec).job_id
            _wait_for(client, paused, _has_trained)
            client.pause(paused)
            _wait_for(client, paused, lambda job: job.state == "PAUSED")
            running = [client.submit(spec).job_id for _ in range(NUM_CPUS)]
            waiting = [client.submit(spec).job_id for _ in range(NUM_CPUS)]
            for job_id in running:
                _wait_for(client, job_id, _has_trained)
            states = {job_id: client.job(job_id) for job_id in (over, paused, *running, *waiting)}
        _tell(started, "before: " + ", ".join(f"{job.state} a{job.attempt}" for job in states.values()))

        world.code = ROOT
        with _asking(world) as seen:
            for name in world.replicas:
                at = time.monotonic()
                world.stop(name)
                world.start(name)
                _tell(started, f"{name} is this checkout's after {time.monotonic() - at:.1f} s")
        with ElectraClient(world.url(world.replicas[0]), timeout_seconds=15.0) as client:
            new = client.submit(spec).job_id
            client.resume(paused)
            for job_id in (paused, *running, *waiting, new):
                _wait_for(client, job_id, lambda job: job.state.is_terminal)
            attempts = {job_id: client.job(job_id).attempt for job_id in (paused, *running, *waiting, new)}
        _tell(started, "all are over")
        acknowledged = [over, paused, *running, *waiting, new]
        engine = make_engine(world.database.url)
        verdict = judge(
            acknowledged, engine, list(world.lifetimes.values()), world.storage / "jobs", world.mlflow_url, reference
        )
        engine.dispose()

    disturbed = [job_id for job_id in (*running, *waiting, new) if attempts[job_id] != 1]
    if attempts[paused] != states[paused].attempt + 1:
        disturbed.append(paused)
    print(f"\n{len(acknowledged)} jobs, from {revision} to this checkout")
    for name, job_ids in {**verdict.faults, "disturbed": disturbed}.items():
        print(f"{name:16} {len(job_ids):4}   {' '.join(job_ids[:5])}")
    away = max(seen.away_seconds, default=0.0)
    print(f"{seen.num_requests} requests meanwhile, no replica answered for {away:.1f} s at most")
    figures = {
        **{f"upgrade_{name}": float(len(job_ids)) for name, job_ids in verdict.faults.items()},
        "upgrade_disturbed": float(len(disturbed)),
        "upgrade_away_seconds": away,
    }
    report(figures, {"before": revision, "verdict": asdict(verdict), "seen": asdict(seen)}, json_path)
    return not disturbed and not any(verdict.faults.values())


def _has_trained(job: JobDetail) -> bool:
    if job.state.is_terminal:
        raise SystemExit(f"{job.job_id} is {job.state} before it was to be disturbed: {job.failure}")
    return job.progress is not None and (job.progress.step or 0) >= 1


def _wait_for(client: ElectraClient, job_id: str, is_so: Callable[[JobDetail], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so(job := client.job(job_id)):
        if time.monotonic() > deadline:
            raise SystemExit(f"{job_id} is {job.state} after {WAIT_SECONDS:.0f} s: {job.progress}")
        time.sleep(POLL_SECONDS)


@contextmanager
def _asking(world: World) -> Iterator[Availability]:
    """Ask for the list of jobs all the while."""
    seen, is_over = Availability(), threading.Event()

    def ask() -> None:
        away_since: float | None = None
        while not is_over.wait(POLL_SECONDS):
            answers = [_answers(f"{world.url(name)}/v1/jobs") for name in world.replicas]
            now = time.monotonic()
            seen.num_requests += 1
            seen.num_refused_by_one += any(answers) and not all(answers)
            if any(answers) and away_since is not None:
                seen.away_seconds.append(now - away_since)
                away_since = None
            elif not any(answers) and away_since is None:
                away_since = now

    thread = threading.Thread(target=ask, name="asking", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join(30.0)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False


@contextmanager
def _checkout(revision: str) -> Iterator[tuple[Path, str]]:
    """The files of a revision in a folder of their own, and its short name."""
    name = _git("rev-parse", "--short", revision)
    with tempfile.TemporaryDirectory(prefix="electra-before-") as folder:
        archive = Path(folder) / "files.tar"
        _git("archive", "--output", str(archive), name)
        shutil.unpack_archive(archive, folder, filter="data")
        yield Path(folder), name


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _tell(started: float, line: str) -> None:
    print(f"{time.monotonic() - started:6.0f} s  {line}", flush=True)


def _options() -> argparse.Namespace:
    parser = option_parser(__doc__ or "", "the same: it is short by itself")
    parser.add_argument("--before", default="HEAD^", metavar="REVISION", help="the old service  [HEAD^]")
    parser.add_argument("--home", type=Path, help="folder for data and logs, which stays  [a temporary one]")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
