"""What the benchmarks share: options, the machine in words, medians with their spread, the file of figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

FIGURES = {
    "bf16_vs_transformers_naive": "our bf16 step: times as fast as Transformers as users write it (fp32)",
    "bf16_vs_transformers_best": "our bf16 step: times as fast as Transformers at its best in bf16",
    "fp32_vs_transformers_naive": "our fp32 step: times as fast as Transformers as users write it (fp32)",
    "fp32_vs_transformers_best": "our fp32 step: times as fast as Transformers at its best in fp32",
    "bf16_matmul_share": "the bf16 step's matrix products run alone, as a share of our step",
    "fp32_matmul_share": "the fp32 step's matrix products run alone, as a share of our step",
    "job_vs_step": "tokens/s of a whole job (Ray Train, loader, MLflow, a checkpoint) as a share of the bare step's",
    "job_vs_step_on_one_cpu": "the same on one CPU each, with another for Ray's own processes",
    "two_workers_vs_one": "tokens/s of two workers of one CPU each over those of one",
    "trainer_memory_growth": "peak memory of the trainer's own on a corpus 16 × as large, over that on the small one",
    "trainer_resident_growth": "peak resident memory of the trainer on a corpus 16 × as large, over that on the small "
    "one: mapped pages of it count",
    "finetune_vs_trainer": "examples/s of a finetuning run: times as many as Transformers' Trainer takes",
    "finetune_vs_trainer_grouped": "the same over Trainer that groups examples by length",
    "finetune_score_difference": "median score of our finetuning runs less that of Trainer's",
    "search_vs_loop": "short trials of a search by Ray Tune: times as fast as the same trials in a bare loop",
    "search_vs_loop_with_files": "the same over a loop that leaves all files of the trials",
    "search_overhead_seconds_per_trial": "seconds that a search takes beside a trial's training and scoring",
    "search_idle_share": "of two places for trials: share of the wall time in which nothing was trained or scored",
    "search_slowdown_two_at_a_time": "seconds of training and scoring of two trials at a time, over those of the same "
    "steps and scores in a bare loop",
    "fair_share_wait_ada": "mean wait of the jobs of one who hands in 30 at once, over that where the oldest go first",
    "fair_share_wait_ben": "the same of one who hands in a job every 4 minutes",
    "fair_share_wait_eve": "the same of one who hands in a job every 8 minutes",
    "load_submit_cpu": "submitting a job: CPU time of the process ÷ the bare one's",
    "load_list_cpu": "the first page of 50 jobs of 10 000: CPU time of the process ÷ the bare one's",
    "load_list_deep_cpu": "a page that 9000 jobs stand before: CPU time of the process ÷ the bare one's",
    "load_list_filtered_cpu": "a page of failed jobs: CPU time of the process ÷ the bare one's",
    "load_get_cpu": "one job: CPU time of the process ÷ the bare one's",
    "schema_cases": "requests that schemathesis made up for the whole OpenAPI document, as six kinds of callers",
    "schema_server_errors": "of these answered 5xx, but for those that need the Ray that is not there",
    "schema_undocumented": "of these answered in a way that the document does not have",
    "upgrade_lost": "jobs lost while replicas of an earlier commit were replaced by this one's",
    "upgrade_disturbed": "jobs that had to begin another attempt for it",
    "upgrade_away_seconds": "longest time in which no replica answered meanwhile",
    "pipeline_vs_loop": "reading, cleaning, deduplicating, tokenising and writing: times as fast as a plain loop",
    "cost_growth_16x": "seconds per MB of a corpus 16 × as large, over those of the small one",
    "pipeline_memory_growth_16x": "peak memory of preparation for a corpus 16 × as large, over that of the small one",
}
"""Name to meaning of every figure that is kept; those of `step.py` on a GPU have a prefix such as `cuda_small_`."""


@dataclass(frozen=True)
class Samples:
    """Repetitions of one measurement."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def as_details(self) -> dict[str, float]:
        return {"median": self.median, "least": min(self.values), "most": max(self.values), "count": len(self.values)}


def option_parser(doc: str, quick: str) -> argparse.ArgumentParser:
    """The options that every benchmark has; `quick` says what `--quick` leaves out."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write figures and details here")
    return parser


def in_turn(names: Iterable[str], repetitions: int) -> Iterable[tuple[int, str]]:
    """Every name once per repetition, each time beginning with another, so that drift falls on all alike."""
    ordered = list(names)
    for repetition in range(repetitions):
        start = repetition % len(ordered)
        for name in ordered[start:] + ordered[:start]:
            yield repetition, name


def report(figures: Mapping[str, float], details: Mapping[str, Any], path: Path | None) -> None:
    """Print the figures, and write them with all details where a path is given."""
    width = max(map(len, figures), default=0)
    for name, value in figures.items():
        print(f"{name:{width}} {value:>12,.3f}")
    if path is not None:
        document = {
            "figures": dict(figures),
            "machine": machine(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "details": dict(details),
        }
        path.write_text(json.dumps(document, indent=1) + "\n")


def machine() -> str:
    """This machine and what decides its speed, in one line."""
    parts = [f"{os.cpu_count()} × {_processor()}", platform.system(), f"Python {platform.python_version()}"]
    for name in ("torch", "transformers", "ray", "tokenizers"):
        try:
            parts.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(parts)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    units = [flag for flag in ("avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return " ".join([next(named, platform.processor() or platform.machine()), *units])
