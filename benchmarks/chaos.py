"""What faults at random moments do to jobs: whether any is lost, run twice at once, stuck, or ends with other weights.

Two replicas of the service on PostgreSQL, an MLflow server and a Ray head, all real and all on this machine, and short
pretraining jobs. One fault after another, in an order and with pauses that the seed decides: kill -9 of the replica
that reconciles, of the other one, of a driver, of a training worker, of PostgreSQL, of MLflow (away for 30 s) and of
the Ray head, whose jobs' processes are left to themselves. Each job is handed in to either replica under a key of its
own, until it is acknowledged.

Judged by the log of events and by what programs wrote themselves: each process that works for a job leaves from when
until when in its folder, and an observer sees from outside when one that was killed was alive last.

    python benchmarks/chaos.py [--quick] [--faults N] [--jobs N] [--seed N] [--home PATH] [--json PATH]
    python benchmarks/chaos.py --jobs 2 --only driver ray

Needs `pip install pgserver`, or PostgreSQL on the path. Processes that it has not started are left alone.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import structlog
from chaos_faults import FAULTS, Fault, Faults, planned
from chaos_verdict import Verdict, judge, weights_of
from chaos_world import World
from common import option_parser, report
from sqlalchemy import Engine

from service.client import ElectraClient
from service.client.errors import ClientError
from service.ledger.database import DATABASE_FAULTS, make_engine
from service.ledger.store import SqlJobStore

NUM_CPUS = 3
"""Of Ray, whatever the machine has: so many jobs run at once."""
PAUSE_SECONDS = (0.0, 10.0)
SUBMIT_SECONDS = 300.0
STUCK_SECONDS = 600.0
"""Jobs are stuck when for so long none of them came to another state, attempt, stage or step. How long they take by
themselves depends on the machine."""


def main() -> None:
    options = _options()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    home = options.home or Path(tempfile.mkdtemp(prefix="electra-chaos-home-"))
    home.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all that was started is stopped
    try:
        is_sound = _run(options, home)
    finally:
        if options.home is None:
            shutil.rmtree(home, ignore_errors=True)
    sys.exit(0 if is_sound else 1)


def _run(options: argparse.Namespace, home: Path) -> bool:
    rng = random.Random(options.seed)
    spec = made_spec(home)
    kinds = options.only or planned(options.faults, rng)
    started = time.monotonic()
    with World(home, NUM_CPUS) as world:
        _tell(started, f"two replicas, PostgreSQL, MLflow and Ray are up; seed {options.seed}")
        engine = make_engine(world.database.url)
        reference_id = _submit(world, spec, rng)
        _wait_for_end(engine, [reference_id])
        reference = weights_of(world.storage / "jobs" / reference_id)
        if not reference:
            raise SystemExit(f"the undisturbed run did not succeed: {SqlJobStore(engine).get(reference_id)}")
        _tell(started, "the undisturbed run has ended")

        faults = Faults(world, rng, lambda: _reconciled_at(engine))
        acknowledged: list[str] = []
        happened: list[Fault] = []
        put_off: list[str] = []
        for index, kind in enumerate(chain(kinds, put_off)):
            # Some beforehand, and the others by and by: until the last fault there is something to hit.
            while len(acknowledged) < min(options.jobs, NUM_CPUS + (index * options.jobs) // options.faults):
                acknowledged.append(_submit(world, spec, rng))
            time.sleep(rng.uniform(*PAUSE_SECONDS))
            fault = faults.happen(kind)
            if fault is None:
                is_last_try = index >= len(kinds)
                _tell(started, f"{kind}: there was none to kill{'' if is_last_try else ', put off'}")
                if not is_last_try:
                    put_off.append(kind)
                continue
            happened.append(fault)
            _tell(started, _line(fault, len(happened)))
        while len(acknowledged) < options.jobs:
            acknowledged.append(_submit(world, spec, rng))
        last_fault_at = time.monotonic()
        left = _wait_for_end(engine, acknowledged)
        _tell(started, f"{time.monotonic() - last_fault_at:.0f} s after the last fault {left} jobs are not over")
        lifetimes = list(world.lifetimes.values())
        verdict = judge(
            [reference_id, *acknowledged], engine, lifetimes, world.storage / "jobs", world.mlflow_url, reference
        )
        engine.dispose()
    _report(options, happened, verdict, len(acknowledged), time.monotonic() - started)
    return not any(verdict.faults.values()) and all(fault.reconciled_seconds is not None for fault in happened)


def made_spec(home: Path) -> dict[str, Any]:
    """A job of some seconds on a text made up here, which only depends on no seed of the run."""
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(600)]
    path = home / "text.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(400):
            chosen = (words[min(int(rng.expovariate(0.01)), len(words) - 1)] for _ in range(rng.randint(40, 120)))
            file.write(json.dumps({"text": " ".join(chosen)}) + "\n")
    return {
        "kind": "pretrain",
        "preset": "tiny",
        "name": "chaos",
        "corpus": {"sources": [{"type": "jsonl", "uris": [str(path)]}]},
        "tokenizer": {"vocab_size": 512, "limit_alphabet": 100},
        "model": {"hidden_size": 32, "embedding_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
        "optimizer": {"warmup_steps": 10},
        "training": {
            "num_train_steps": 1000,
            "global_batch_size": 8,
            "sequence_length": 32,
            "checkpoint_interval_steps": 100,
            "log_interval_steps": 20,
            "max_failures": 10,
        },
        "compute": {"num_workers": 1},
        "evaluation": {"interval_steps": 500, "max_rows": 64},
    }


def _submit(world: World, spec: dict[str, Any], rng: random.Random) -> str:
    """Hand a job in, to one replica or the other, until one of them has acknowledged it."""
    key = uuid.UUID(int=rng.getrandbits(128)).hex
    deadline = time.monotonic() + SUBMIT_SECONDS
    while True:
        try:
            with ElectraClient(world.url(rng.choice(world.replicas)), timeout_seconds=15.0) as client:
                return client.submit(spec, idempotency_key=key).job_id
        except ClientError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"no replica took a job for {SUBMIT_SECONDS:.0f} s: {error}") from error
            time.sleep(0.5)


def _wait_for_end(engine: Engine, job_ids: Sequence[str]) -> int:
    """Return when all are over, or stuck; how many are not over."""
    store = SqlJobStore(engine)
    seen: list[object] = []
    moved_at = time.monotonic()
    while time.monotonic() - moved_at < STUCK_SECONDS:
        jobs = [store.get(job_id) for job_id in job_ids]
        left = [job for job in jobs if job is not None and not job.state.is_terminal]
        if not left:
            return 0
        now = [(job.state, job.attempt, job.progress and (job.progress.stage, job.progress.step)) for job in left]
        if now != seen:
            seen, moved_at = now, time.monotonic()
        time.sleep(1.0)
    return len(seen)


def _reconciled_at(engine: Engine) -> float:
    try:
        status = SqlJobStore(engine).cluster_status()
    except DATABASE_FAULTS:  # it is being killed
        return 0.0
    return 0.0 if status is None else status.reconciled_at.timestamp()


def _report(
    options: argparse.Namespace, happened: Sequence[Fault], verdict: Verdict, num_jobs: int, seconds: float
) -> None:
    print(f"\n{'fault':10} {'times':>6}   seconds from its end to two ready replicas and a new round: median, most")
    for kind in FAULTS:
        told = [fault.reconciled_seconds for fault in happened if fault.kind == kind]
        known = [one for one in told if one is not None]
        middle = f"{statistics.median(known):8.1f} {max(known):8.1f}" if known else ""
        print(f"{kind:10} {len(told):6}   {middle}{'   NEVER' if len(known) < len(told) else ''}")
    print(f"\n{num_jobs} jobs, {verdict.num_attempts} attempts, {verdict.num_tenures} processes that worked for them")
    for name, job_ids in verdict.faults.items():
        print(f"{name:16} {len(job_ids):4}   {' '.join(job_ids[:5])}")
    last = happened[-1].reconciled_seconds if happened else None
    figures = {
        "chaos_faults": float(len(happened)),
        "chaos_jobs": float(num_jobs),
        **{f"chaos_{name}": float(len(job_ids)) for name, job_ids in verdict.faults.items()},
        **({"chaos_reconciled_seconds": last} if last is not None else {}),
    }
    details = {"seed": options.seed, "seconds": seconds, "faults": [asdict(fault) for fault in happened]}
    print()
    report(figures, details | {"verdict": asdict(verdict), "load": os.getloadavg()}, options.json)


def _line(fault: Fault, number: int) -> str:
    seconds = "NEVER" if fault.reconciled_seconds is None else f"{fault.reconciled_seconds:.1f} s"
    away = fault.back_at - fault.began_at
    return f"{number:3} {fault.kind:9} {fault.target:32} away {away:5.1f} s, reconciled after {seconds}"


def _tell(started: float, line: str) -> None:
    print(f"{time.monotonic() - started:6.0f} s  {line}", flush=True)


def _options() -> argparse.Namespace:
    parser = option_parser(__doc__ or "", "7 faults, one of each kind, and 6 jobs")
    parser.add_argument("--faults", type=int, metavar="N", help="how many faults  [60; with --quick 7]")
    parser.add_argument("--jobs", type=int, metavar="N", help="how many jobs  [60; with --quick 6]")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the faults and of the pauses between them")
    parser.add_argument("--home", type=Path, help="folder for data and logs, which stays  [a temporary one]")
    parser.add_argument("--only", nargs="+", choices=FAULTS, metavar="KIND", help="these faults and no others, in turn")
    options = parser.parse_args()
    options.faults = len(options.only or ()) or options.faults or (7 if options.quick else 60)
    options.jobs = options.jobs or (6 if options.quick else 60)
    return options


if __name__ == "__main__":
    main()
