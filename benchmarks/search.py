"""What a search costs beside its training: short trials by Ray Tune against the same trials in a bare loop.

    python benchmarks/search.py [--trials 16] [--steps 200] [--repetitions 3] [--quick] [--json PATH]

The bare loop trains and scores the trials one after another in one process, with nothing around it. The search runs
the same trials one at a time, with Ray Tune, the ledger and all files; both on one thread. Its overhead is the
difference in wall time over the trials, Ray Tune's start and that of the trials' process included; Ray itself runs
already. Then twice as many trials run two at a time with ASHA, and of the wall time of both places the share is told in
which nothing was trained or scored.
"""

from __future__ import annotations

import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from common import Samples, in_turn, option_parser, report
from ray_environment import start_ray  # sorted before what imports Ray, which reads its environment then
from synthetic_corpus import write_token_corpus

from pipelines.job import JobDirectory, ProgressReporter
from pipelines.searching.ledger import Ledger
from pipelines.searching.measures import TrainingMeasure
from pipelines.searching.run_trials import run_trials
from pipelines.searching.rungs import rung_shares
from pipelines.searching.suggest import proposer_of
from pipelines.searching.trial import SearchContext, make_trial
from pipelines.specs.parsing import resolve_spec
from pipelines.specs.search import SearchSpec
from pipelines.specs.space import Point
from pipelines.specs.trials import trial_spec
from pipelines.storage.artifacts import PreparedCorpus

VOCAB_SIZE, NUM_TOKENS = 4096, 2_000_000
METRIC = "generator_loss"
TIMEOUT_SECONDS = 3600
LOOP, SEARCH = "bare loop", "search"


def main() -> None:
    """Run, print, and write the figures where asked."""
    parser = option_parser(__doc__ or "", "a quarter of the trials, one repetition")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--steps", type=int, default=200, help="of a trial")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    num_trials = options.trials // 4 if options.quick else options.trials
    repetitions = 1 if options.quick else options.repetitions
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        corpus = write_token_corpus(folder / "corpus", NUM_TOKENS, VOCAB_SIZE)
        start_ray(num_cpus=2)
        seconds: dict[str, list[float]] = {LOOP: [], SEARCH: []}
        for repetition, name in in_turn(seconds, repetitions):
            context = context_of(folder / f"{name}-{repetition}", corpus, num_trials, options.steps, "none")
            took = search(context, 1)[0] if name == SEARCH else loop(context, num_trials)
            seconds[name].append(took)
            print(f"  {name:12} {took:8,.1f} s for {num_trials} trials")
        samples = {name: Samples(tuple(found)) for name, found in seconds.items()}
        context = context_of(folder / "idle", corpus, 2 * num_trials, options.steps, "asha")
        wall, busy = search(context, 2)
        print(f"  two at a time {wall:7,.1f} s, {busy:,.1f} s of training and scoring in both places")
    overhead = (samples[SEARCH].median - samples[LOOP].median) / num_trials
    figures = {
        "search_vs_loop": samples[LOOP].median / samples[SEARCH].median,
        "search_overhead_seconds_per_trial": overhead,
        "search_idle_share": 1 - busy / (2 * wall),
    }
    details: dict[str, Any] = {name: one.as_details() for name, one in samples.items()}
    report(figures, details | {"num_trials": num_trials, "num_steps": options.steps}, options.json)


def context_of(folder: Path, corpus: PreparedCorpus, num_trials: int, steps: int, scheduler: str) -> SearchContext:
    """A search for learning rates on the synthetic corpus."""
    document = {
        "kind": "search",
        "base": {
            "preset": "tiny",
            "optimizer": {"warmup_steps": 10},
            "evaluation": {"max_rows": 64},
            "compute": {"num_workers": 1, "cpus_per_worker": 1},
        },
        "space": {"optimizer.learning_rate": {"type": "log_uniform", "low": 1e-4, "high": 1e-2}},
        "objective": {"type": "training_metric", "metric": METRIC},
        "budget": {"steps": steps},
        "num_trials": num_trials,
        "scheduler": {"type": scheduler},
        "searcher": {"type": "random"},
    }
    spec = resolve_spec(document)
    assert isinstance(spec, SearchSpec)
    base = trial_spec(spec, {}, corpus.vocab_size)
    return SearchContext(spec, base, corpus, None, str(folder / "jobs" / "job"), rung_shares(spec.scheduler))


def search(context: SearchContext, at_a_time: int) -> tuple[float, float]:
    """Wall seconds of the whole search, and seconds of training and scoring over all trials."""
    compute = context.search.compute.model_copy(update={"max_concurrent_trials": at_a_time})
    changed = context.search.model_copy(update={"compute": compute})
    context = SearchContext(
        changed, context.base, context.corpus, context.initial_weights, context.job_uri, context.shares
    )
    directory = JobDirectory(context.job_uri)
    ledger = Ledger(directory, METRIC, "min")
    start = time.perf_counter()
    proposer = proposer_of(changed, "min")
    reporter = ProgressReporter(directory)
    run_trials(context, TrainingMeasure(METRIC), ledger, proposer, reporter, name="trials")
    wall = time.perf_counter() - start
    return wall, sum(one.train_seconds + one.score_seconds for one in ledger.trials)


def loop(context: SearchContext, num_trials: int) -> float:
    """Wall seconds of the same trials in a process of its own, its start left out."""
    proposer = proposer_of(context.search, "min")
    points: list[Point] = []
    while len(points) < num_trials:
        proposal = proposer.next()
        assert proposal is not None
        points.append(proposal.point)
    with get_context("spawn").Pool(1) as pool:
        return pool.apply_async(run_loop, (context, points)).get(timeout=TIMEOUT_SECONDS)


def run_loop(context: SearchContext, points: list[Point]) -> float:
    """Train and score every point."""
    import os

    os.environ["MALLOC_ARENA_MAX"] = "1"
    from pipelines.searching.advance import advance
    from pipelines.training.workers import choose_cpu_kernels, limit_threads

    limit_threads(context.base.compute)
    choose_cpu_kernels()
    start = time.perf_counter()
    for point in points:
        trial = make_trial(context, point)
        for rung in range(len(trial.steps)):
            advance(trial, TrainingMeasure(METRIC), rung, context.job_uri)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
