"""What a whole job costs beside its bare step, what a second worker gains, and what a larger corpus takes in memory.

    python benchmarks/scaling.py [--quick] [--repetitions N] [--job-alone] [--json PATH]

The job is `pipelines.training.fitting.fit`: Ray Train workers, the loader, progress and metrics into a local MLflow
store, a checkpoint in the middle of what is timed. Its speed is tokens over wall time between two of its own log
entries, after warm-up; start-up is left out, the checkpoint is not. Bare step and jobs take turns in one run. Tokens
are synthetic, so nothing is downloaded. Needs two CPUs. Without --quick: ELECTRA-Small, 16 × 128.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common import Samples, in_turn, option_parser, report
from contenders.agreement import Contender
from contenders.homes import Home
from contenders.ours import Ours
from contenders.sizes import Size
from memory import PeakOfFamily, peak_rss_bytes
from synthetic_corpus import write_token_corpus

from pipelines.specs.parsing import resolve_spec
from pipelines.specs.pretrain import PretrainSpec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.training.task import TrainingTask
from pipelines.training.telemetry import SilentTelemetry
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker, choose_cpu_kernels, limit_threads

GROWTH = (1, 4, 16)
CORES = os.cpu_count() or 1
BARE, WHOLE = f"bare step, {CORES} CPUs", f"job, 1 worker of {CORES} CPUs"
BARE_ONE, ONE, TWO = "bare step, 1 CPU", "job, 1 worker of 1 CPU", "job, 2 workers of 1 CPU"


class Plan(NamedTuple):
    """How long and how large."""

    preset: str
    rows: int
    length: int
    vocab_size: int
    num_steps: int
    """Of a job. A fifth is warm-up; the checkpoint is at three fifths."""
    bare_steps: int
    repetitions: int
    corpus_tokens: int
    """Of the smallest corpus of the growing ones."""
    memory_steps: int

    def spec(self, precision: str, num_workers: int = 1, cpus_per_worker: int = 1) -> PretrainSpec:
        changes = {
            "training.num_train_steps": self.num_steps,
            "training.global_batch_size": self.rows,
            "training.sequence_length": self.length,
            "training.precision": precision,
            "training.log_interval_steps": max(1, self.num_steps // 20),
            "training.checkpoint_interval_steps": self.num_steps * 3 // 5,
            "evaluation.interval_steps": 1_000_000,
            "optimizer.warmup_steps": 10,
            "model.hidden_dropout_prob": 0.1,
            "model.attention_probs_dropout_prob": 0.1,
            "compute.num_workers": num_workers,
            "compute.cpus_per_worker": cpus_per_worker,
        }
        document = {"kind": "pretrain", "preset": self.preset}
        return resolve_spec(document, [f"{name}={value}" for name, value in changes.items()])


QUICK = Plan("tiny", 16, 64, 4096, 160, 60, 1, 1_000_000, 30)
FULL = Plan("small", 16, 128, 30_522, 40, 15, 2, 16_000_000, 40)


def build_bare(size: Size, spec: PretrainSpec) -> dict[str, Contender]:
    limit_threads(spec.compute)
    choose_cpu_kernels()
    return {"step": Ours(size, spec.training.precision, torch.device("cpu"), spec.optimizer)}


def speeds(plan: Plan, precision: str, corpus: PreparedCorpus, folder: Path, *, only_whole: bool) -> dict[str, Samples]:
    """Tokens per second of the bare step, on all CPUs and on one, and of three kinds of job; or of what has all CPUs
    alone.
    """
    import jobs  # imports Ray and MLflow, which the processes started from here can do without
    import ray

    specs = {WHOLE: plan.spec(precision, 1, CORES), ONE: plan.spec(precision), TWO: plan.spec(precision, 2)}
    size = Size(plan.preset, specs[WHOLE].model, specs[WHOLE].masking, plan.rows, plan.length, plan.vocab_size)
    bare = {BARE: specs[WHOLE], BARE_ONE: specs[ONE]}
    if only_whole:
        del specs[ONE], specs[TWO], bare[BARE_ONE]
    found: dict[str, list[float]] = {name: [] for name in (*bare, *specs)}
    with contextlib.ExitStack() as stack:
        homes = {name: stack.enter_context(Home(build_bare, size, spec)) for name, spec in bare.items()}
        for home in homes.values():
            home.names()
            home.ask("step", "run", plan.bare_steps)  # warm-up
        jobs.start_ray(CORES)
        try:
            for repetition, name in in_turn(found, plan.repetitions):
                if name in homes:
                    speed = size.tokens / homes[name].ask("step", "run", plan.bare_steps)
                else:
                    label = f"{list(specs).index(name)}-{repetition}"
                    speed = jobs.tokens_per_second(specs[name], corpus, folder, label, plan.num_steps // 5)
                print(f"  {name:26} {speed:10,.0f} tokens/s", file=sys.stderr, flush=True)
                found[name].append(speed)
        finally:
            ray.shutdown()
    return {name: Samples(tuple(values)) for name, values in found.items()}


def memory_by_growth(plan: Plan, precision: str, folder: Path) -> dict[int, dict[str, int]]:
    """Peak memory of the trainer as the corpus grows. Its steps draw rows from all over the corpus."""
    spec = plan._replace(num_steps=plan.memory_steps).spec(precision)
    found = {}
    for factor in GROWTH:
        place = folder / f"memory-{factor}"
        corpus = write_token_corpus(place / "corpus", factor * plan.corpus_tokens, plan.vocab_size)
        told = trainer_memory(TrainingTask(spec, corpus, str(place / "checkpoints")))
        found[factor] = told | {"corpus_bytes": sum(shard.size_bytes for shard in corpus.shards)}
        shutil.rmtree(place)
    return found


def trainer_memory(task: TrainingTask) -> dict[str, int]:
    """Bytes held by a process of its own that runs the training loop on a corpus."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_train_and_tell, args=(task, theirs))
    process.start()
    theirs.close()
    with contextlib.closing(ours), PeakOfFamily(process.pid or 0) as peak:
        told: dict[str, int] = ours.recv()
    process.join()
    return told | {"peak_anonymous_bytes": peak.peak_bytes}


def _train_and_tell(task: TrainingTask, connection: Connection) -> None:
    limit_threads(task.spec.compute)
    choose_cpu_kernels()
    train(task, Worker(), SilentTelemetry())
    connection.send({"peak_rss_bytes": peak_rss_bytes()})


def main() -> None:
    parser = option_parser(__doc__, "the tiny preset, each job once: under two minutes")
    parser.add_argument("--repetitions", type=int, help="turns of each contender; 2 unless given")
    parser.add_argument("--job-alone", action="store_true", help="job and bare step on all CPUs, and nothing else")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="fp32", help="of products; the preset's: fp32")
    options = parser.parse_args()
    if CORES < 2:
        sys.exit("two workers need two CPUs")
    logging.disable(logging.WARNING)  # Ray Train's
    plan = QUICK if options.quick else FULL
    plan = plan._replace(repetitions=options.repetitions or plan.repetitions)
    with tempfile.TemporaryDirectory(prefix="electra-bench-") as scratch:
        folder = Path(scratch)
        corpus = write_token_corpus(folder / "corpus", plan.corpus_tokens, plan.vocab_size)
        found = speeds(plan, options.precision, corpus, folder, only_whole=options.job_alone)
        memory = {} if options.job_alone else memory_by_growth(plan, options.precision, folder)
    figures = {"job_vs_step": found[WHOLE].median / found[BARE].median}
    if not options.job_alone:
        smallest, largest = memory[GROWTH[0]], memory[GROWTH[-1]]
        figures |= {
            "job_vs_step_on_one_cpu": found[ONE].median / found[BARE_ONE].median,
            "two_workers_vs_one": found[TWO].median / found[ONE].median,
            "trainer_memory_growth": largest["peak_anonymous_bytes"] / smallest["peak_anonymous_bytes"],
            "trainer_resident_growth": largest["peak_rss_bytes"] / smallest["peak_rss_bytes"],
        }
    details: dict[str, Any] = {
        "plan": plan._asdict() | {"precision": options.precision},
        "tokens_per_second": {name: samples.as_details() for name, samples in found.items()},
        "trainer_memory": {f"{factor}x": told for factor, told in memory.items()},
    }
    report(figures, details, options.json)


if __name__ == "__main__":
    main()
