"""A job on the chart's pods, from `electra submit` to the registered model, and what is done to it meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from chart_plans import ROOT, WORKERS
from chart_pods import ChartHosts

JOB_SECONDS = 900.0
_LOOK = ROOT / "benchmarks/chart_look.py"


@dataclass(frozen=True)
class Fault:
    """What happens to a job once."""

    name: str
    is_due: Callable[[Mapping[str, Any]], bool]
    """Asked with the job as the service tells of it."""
    strike: Callable[[], None]
    """Returns when it is over."""


@dataclass
class Outcome:
    """Of a job."""

    weights: dict[str, str]
    """SHA-256 of each exported network."""
    wrong: list[str]


def at_step(step: int) -> Callable[[Mapping[str, Any]], bool]:
    """Once it has trained so far."""
    return lambda job: ((job.get("progress") or {}).get("step") or 0) >= step


def in_stage(stage: str) -> Callable[[Mapping[str, Any]], bool]:
    """While it is there."""
    return lambda job: (job.get("progress") or {}).get("stage") == stage


def run_job(
    hosts: ChartHosts,
    client: Mapping[str, str],
    spec: Mapping[str, Any],
    tell: Callable[[str], None],
    faults: Sequence[Fault] = (),
) -> Outcome:
    """From the outsider's `electra submit` to the model, or to what went wrong.

    Args:
        hosts: with a service that is ready.
        client: environment of the one who sends it.
        spec: of the job.
        tell: takes what happens, line by line.
        faults: each strikes once, in turn.
    """
    text = yaml.safe_dump(dict(spec))
    command = "cat > /tmp/spec.yaml <<'END'\n" + text + "END\nelectra submit /tmp/spec.yaml --json"
    job_id = json.loads(outside(hosts, client, "bash", "-c", command))["job_id"]
    places: set[str] = set()
    left = list(faults)
    began = time.monotonic()
    while True:
        job = json.loads(outside(hosts, client, "electra", "show", job_id, "--json"))
        places |= {name for name in WORKERS if _trains(hosts, name)}
        if left and left[0].is_due(job):
            fault = left.pop(0)
            struck = time.monotonic()
            fault.strike()
            tell(f"{job_id}: {fault.name} for {time.monotonic() - struck:.0f} s; the job before: {_said(job)}")
        for name in hosts.restart_ended():
            tell(f"{name} has ended by itself, and is started again; the job: {_said(job)}")
        if job["state"] in ("SUCCEEDED", "FAILED", "CANCELLED"):
            break
        if time.monotonic() - began > JOB_SECONDS:
            return Outcome({}, [f"{job_id} is {job['state']} after {JOB_SECONDS:.0f} s: {job.get('progress')}"])
        time.sleep(1.0)
    models = [one["name"] for one in (job.get("result") or {}).get("models", ())]
    tell(f"{job_id} is {job['state']} after {time.monotonic() - began:.0f} s, attempt {job['attempt']}, "
         f"workers on {sorted(places)}, models {models}")  # fmt: skip
    wrong = [] if job["state"] == "SUCCEEDED" and models else [f"{job_id} is {job['state']}: {job.get('reason')}"]
    if places != set(WORKERS):
        wrong.append(f"{job_id} trained on {sorted(places)} and not on {WORKERS}")
    wrong += [f"{job_id} was over before {fault.name}" for fault in left]
    found = json.loads(hosts.execute("head", sys.executable, str(_LOOK), job_id).splitlines()[-1])
    tell(f"{job_id} left {found['corpora']} corpora, checkpoints {found['checkpoints']}, uploaded in "
         f"{sorted(found['parts'].values())} parts, {len(found['registered'])} models that MLflow gives out; "
         f"of storage its logs say {found['faults']}")  # fmt: skip
    return Outcome(found["weights"], wrong + found["wrong"])


def outside(hosts: ChartHosts, client: Mapping[str, str], *command: str) -> str:
    """What a command prints that runs beside the chart."""
    return hosts.execute("outsider", "env", *(f"{name}={value}" for name, value in client.items()), *command)


def failing(hosts: ChartHosts, name: str, *command: str) -> str:
    """What a command says that should fail."""
    try:
        return hosts.execute(name, *command)
    except SystemExit as error:
        return str(error).strip()


def _said(job: Mapping[str, Any]) -> str:
    progress = job.get("progress") or {}
    where = f"{progress.get('stage')}, step {progress.get('step')}"
    return f"attempt {job.get('attempt')}, {where}, {progress.get('message')!r}"


def _trains(hosts: ChartHosts, name: str) -> bool:
    pids = subprocess.run(
        ["ip", "netns", "pids", hosts.pods[name].network], capture_output=True, text=True, timeout=30, check=False
    ).stdout.split()
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::RayTrainWorker"):
                return True
        except OSError:
            continue
    return False
