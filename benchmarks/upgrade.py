"""An upgrade of the service in the middle of its work: what becomes of jobs that an earlier version took.

The service of an earlier commit runs from a worktree of its own, on a real PostgreSQL, with a real Ray cluster and a
real MLflow server, until jobs of its run and others wait. Then it is killed, and the service of this checkout starts on
the same database, which it brings to its own form. The cluster stays as it is, as with an upgrade of the service alone:
programs that run go on, and those that wait start there. Fails if a job is lost, is started twice, or does not succeed.

    python benchmarks/upgrade.py [--quick] [--json PATH] [--revision REV]

Without `--revision`, the newest ancestor of this checkout whose migrations end earlier than ours.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from common import option_parser, report
from postgres_home import new_database, postgres_server
from schema_world import start_mlflow
from service_process import ROOT, START_SECONDS, service
from sqlalchemy import create_engine, text

from service.local import components
from service.local.errors import ComponentFailedError
from service.local.ports import claim_port
from service.local.processes import Component, sweep

VERSIONS = "service/ledger/migrations/versions"
TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
END_SECONDS = 1500.0
NUM_CPUS = 2


def earlier_revision() -> str:
    """The newest ancestor whose migrations are the first of ours, but not all of them."""
    ours = _migrations("HEAD")
    for revision in _git("rev-list", "--first-parent", "HEAD").split():
        theirs = _migrations(revision)
        if theirs and len(theirs) < len(ours) and ours[: len(theirs)] == theirs:
            return revision
    raise SystemExit("no ancestor has fewer migrations: name one with --revision")


@contextmanager
def checked_out(revision: str, folder: Path) -> Iterator[Path]:
    """A worktree of a revision."""
    _git("worktree", "add", "--detach", str(folder), revision)
    try:
        yield folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


@dataclass
class Cluster:
    """Ray, as the jobs of both versions have it."""

    url: str
    token: str

    def submissions(self) -> Counter[str]:
        """How many programs were handed to Ray, by job."""
        headers = {"Authorization": f"Bearer {self.token}"}
        listed = httpx.get(f"{self.url}/api/jobs/", headers=headers, timeout=30, trust_env=False).raise_for_status()
        names = [str(one.get("submission_id") or "") for one in listed.json()]
        return Counter(name.rpartition("-a")[0] for name in names if "-a" in name)


@contextmanager
def ray_cluster(home: Path, code: Path, mlflow_url: str, storage_uri: str) -> Iterator[tuple[Cluster, Path]]:
    """A Ray that runs jobs by the code of a checkout, and the file of its token; no process of it is left behind."""
    stack_id = uuid.uuid4().hex
    token_path = home / "ray.token"
    shared = components.shared_environment(
        stack_id, mlflow_url=mlflow_url, storage_uri=storage_uri, token_path=token_path
    )
    # All of this machine's processes share its processors: jobs are not put behind the others for it.
    shared |= {"PYTHONPATH": str(code), "RAY_worker_niceness": "0", "HF_HUB_OFFLINE": "1"}
    taken: set[int] = set()
    port, client_port = (claim_port(0, "Ray", "", taken) for _ in range(2))
    with tempfile.TemporaryDirectory(prefix="electra-up-", ignore_cleanup_errors=True) as folder:
        plan = components.ray(
            shared,
            directory=Path(folder) / "ray",
            port=port,
            client_port=client_port,
            num_cpus=NUM_CPUS,
            token_path=token_path,
        )
        component = Component("ray", plan, home, home / "ray.log")
        try:
            start_ray(component)
            yield Cluster(f"http://127.0.0.1:{port}", token_path.read_text()), token_path
        finally:
            component.stop(10.0)
            sweep(stack_id, grace_seconds=3.0)


def start_ray(component: Component) -> None:
    """Ray gives itself 30 s to start, which a busy machine may not keep to: some attempts."""
    for is_last in (False, False, True):
        component.start()
        try:
            component.wait_until_ready(START_SECONDS)
        except ComponentFailedError:
            component.kill()
            if is_last:
                raise
        else:
            return


def spec_of(number: int, corpus: Path, num_steps: int) -> dict[str, Any]:
    """A job of one worker and some hundred steps."""
    return {
        "kind": "pretrain",
        "preset": "tiny",
        "name": f"upgrade-{number}",
        "corpus": {"sources": [{"type": "jsonl", "uris": [str(corpus)]}]},
        "tokenizer": {"vocab_size": 512, "limit_alphabet": 100},
        "model": {"hidden_size": 64, "embedding_size": 64, "num_attention_heads": 2, "intermediate_size": 128},
        "optimizer": {"warmup_steps": 20},
        "training": {"num_train_steps": num_steps, "checkpoint_interval_steps": 200, "log_interval_steps": 20},
        "compute": {"num_workers": 1},
        "evaluation": {"interval_steps": num_steps, "max_rows": 32},
        "seed": number,
    }


def write_corpus(path: Path) -> None:
    """Documents of made-up words."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghiklmnoprstu", k=draw.randint(2, 8))) for _ in range(400)]
    documents = (" ".join(draw.choices(words, k=draw.randint(40, 120))) for _ in range(3000))
    path.write_text("".join(json.dumps({"text": f"{document}."}) + "\n" for document in documents))


def jobs_of(url: str) -> dict[str, Any]:
    """All jobs by id; none where the service does not answer now."""
    answer = httpx.get(f"{url}/v1/jobs", params={"limit": 200}, timeout=60, trust_env=False).raise_for_status()
    return {job["job_id"]: job for job in answer.json()["items"]}


def wait_until(what: str, condition: Any, seconds: float = END_SECONDS) -> Any:
    """What a condition says, once it says something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if told := condition():
            return told
        time.sleep(1.0)
    raise TimeoutError(f"{what} did not come within {seconds:.0f} s")


def run(revision: str, num_jobs: int, num_steps: int) -> tuple[dict[str, float], dict[str, Any]]:
    """The whole upgrade."""
    with ExitStack() as held:
        home = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="electra-upgrade-")))
        old = held.enter_context(checked_out(revision, home / "old"))
        database_url = new_database(held.enter_context(postgres_server()))
        mlflow_url = held.enter_context(start_mlflow(home / "mlflow"))
        storage = str(home / "storage")
        ray, token_path = held.enter_context(ray_cluster(home, old, mlflow_url, storage))
        corpus = home / "corpus.jsonl"
        write_corpus(corpus)
        settings = {
            "ray_address": ray.url,
            "ray_token_path": token_path,
            "mlflow_url": mlflow_url,
            "storage_uri": storage,
            "job_python": sys.executable,
            "max_running_jobs": NUM_CPUS,
            "reconcile_interval_seconds": 0.5,
        }
        with service(home / "old-service", database_url, code=old, **settings) as (url, process):
            print(f"{revision[:7]} serves a database of form {head_of(database_url)}", flush=True)
            specs = [spec_of(number, corpus, num_steps) for number in range(num_jobs)]
            answers = [httpx.post(f"{url}/v1/jobs", json={"spec": spec}, timeout=60, trust_env=False) for spec in specs]
            taken = {answer.raise_for_status().json()["job_id"] for answer in answers}

            def is_at_work() -> bool:
                jobs = jobs_of(url)
                steps = [job["progress"].get("step") or 0 for job in jobs.values() if job["progress"]]
                return max(steps, default=0) > 0

            wait_until("the first step", is_at_work)
            before = jobs_of(url)
            process.kill()
        killed_at = time.monotonic()
        states = Counter(job["state"] for job in before.values())
        print(f"killed with {dict(states)}", flush=True)
        assert states["RUNNING"] >= 1, "nothing ran when the service was killed"
        assert states["QUEUED"] >= 1, "nothing waited when the service was killed"
        with service(home / "new-service", database_url, **settings) as (url, _):
            taken_over = time.monotonic() - killed_at
            after = jobs_of(url)
            print(f"ours serves it after {taken_over:.1f} s, of form {head_of(database_url)}", flush=True)
            for job_id, job in before.items():
                assert after[job_id]["created_at"] == job["created_at"], f"{job_id} is another job now"

            def ended() -> dict[str, Any] | None:
                jobs = jobs_of(url)
                return jobs if all(job["state"] in TERMINAL for job in jobs.values()) else None

            last = wait_until("the end of all jobs", ended)
        submissions = ray.submissions()
        runs = runs_by_job(mlflow_url)
        seconds = time.monotonic() - killed_at
    for job_id, job in sorted(last.items()):
        print(
            f"{job['name']:12} {before[job_id]['state']:9} -> {job['state']:10} attempt {job['attempt']}, "
            f"{submissions[job_id]} programs on Ray, {runs[job_id]} MLflow runs, failure {job['failure']}"
        )
    figures = {
        "upgrade_jobs_lost": float(len(taken - last.keys())),
        "upgrade_jobs_run_twice": float(
            sum(job["attempt"] != 1 or submissions[job_id] != 1 or runs[job_id] != 1 for job_id, job in last.items())
        ),
        "upgrade_jobs_not_succeeded": float(sum(job["state"] != "SUCCEEDED" for job in last.values())),
        "upgrade_seconds_to_takeover": taken_over,
    }
    details = {
        "revision": revision,
        "jobs": num_jobs,
        "steps": num_steps,
        "states_before": dict(states),
        "seconds_from_kill_to_last_end": seconds,
    }
    return figures, details


def runs_by_job(mlflow_url: str) -> Counter[str]:
    """How many MLflow runs name each job."""
    listed = httpx.post(
        f"{mlflow_url}/api/2.0/mlflow/experiments/search", json={"max_results": 100}, timeout=30, trust_env=False
    ).raise_for_status()
    ids = [one["experiment_id"] for one in listed.json()["experiments"]]
    found = httpx.post(
        f"{mlflow_url}/api/2.0/mlflow/runs/search", json={"experiment_ids": ids}, timeout=30, trust_env=False
    ).raise_for_status()
    tags = [tag for one in found.json().get("runs", []) for tag in one["data"].get("tags", [])]
    return Counter(tag["value"] for tag in tags if tag["key"] == "electra.job_id")


def head_of(database_url: str) -> str:
    """The migration that a database is at."""
    engine = create_engine(database_url)
    with engine.connect() as connection:
        told = connection.scalar(text("SELECT version_num FROM alembic_version"))
    engine.dispose()
    return str(told)


def main() -> None:
    parser = option_parser(__doc__, "3 jobs of 200 steps instead of 5 of 400")
    parser.add_argument("--revision", help="of the earlier service")
    options = parser.parse_args()
    num_jobs, num_steps = (3, 200) if options.quick else (5, 400)
    figures, details = run(options.revision or earlier_revision(), num_jobs, num_steps)
    report(figures, details, options.json)
    bad = {name for name in figures if name != "upgrade_seconds_to_takeover" and figures[name]}
    if bad:
        raise SystemExit(f"must be 0: {', '.join(sorted(bad))}")


def _migrations(revision: str) -> list[str]:
    names = _git("ls-tree", "--name-only", revision, f"{VERSIONS}/").split()
    return sorted(name for name in names if Path(name).name[:4].isdecimal())


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
