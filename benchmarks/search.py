"""What a search costs beside its training: short trials by Ray Tune against the same trials in bare loops.

    python benchmarks/search.py [--trials 16] [--steps 200] [--repetitions 3] [--quick] [--json PATH]

Four contenders take turns, all on one thread a trial. The bare loop trains and scores the trials one after another in
one process and in memory alone. The loop with our files does the same with each trial's folder: signs of life, curve,
checkpoint, score. The search runs the same trials one at a time, with Ray Tune, the list of trials, its watch and its
sweeper; Ray itself runs already, and the start of Ray Tune and of the trials' process counts. Last, twice as many
trials run two at a time with ASHA: of the wall time of both places the share is told in which nothing was trained or
scored, and how much longer than in the bare loop the same steps and scores took.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from common import Samples, in_turn, option_parser, report
from ray_environment import start_ray  # sorted before what imports Ray, which reads its environment then
from synthetic_corpus import write_token_corpus
from trial_loops import METRIC, Times, run_loop

from pipelines.job import JobDirectory, ProgressReporter
from pipelines.searching.keep import CheckpointSweeper
from pipelines.searching.ledger import Ledger
from pipelines.searching.measures import TrainingMeasure
from pipelines.searching.run_trials import run_trials
from pipelines.searching.rungs import rung_shares
from pipelines.searching.suggest import proposer_of
from pipelines.searching.trial import SearchContext
from pipelines.searching.watch import TrialWatch
from pipelines.specs.parsing import resolve_spec
from pipelines.specs.search import SearchSpec
from pipelines.specs.space import Point
from pipelines.specs.trials import trial_spec
from pipelines.storage.artifacts import PreparedCorpus

VOCAB_SIZE, NUM_TOKENS = 4096, 2_000_000
TIMEOUT_SECONDS = 3600
LOOP, FILES, SEARCH, PAIRS = "bare loop", "loop with our files", "search", "two at a time"
SCORE_TOLERANCE = 1e-4


class Searched(NamedTuple):
    """What a search took."""

    seconds: float
    """By the wall."""
    busy_seconds: float
    """Of training and scoring, over all trials."""
    num_steps: int
    num_scores: int


def main() -> None:
    """Run, print, and write the figures where asked."""
    parser = option_parser(__doc__ or "", "a quarter of the trials, half the steps, one repetition")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--steps", type=int, default=200, help="of a trial")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    num_trials, num_steps, repetitions = options.trials, options.steps, options.repetitions
    if options.quick:
        num_trials, num_steps, repetitions = num_trials // 4, num_steps // 2, 1
    results: dict[str, list[Any]] = {LOOP: [], FILES: [], SEARCH: [], PAIRS: []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        corpus = write_token_corpus(folder / "corpus", NUM_TOKENS, VOCAB_SIZE)
        start_ray(num_cpus=2)
        for _, name in in_turn(results, repetitions):
            count, scheduler = (2 * num_trials, "asha") if name == PAIRS else (num_trials, "none")
            context = context_of(folder / "search", corpus, count, num_steps, scheduler)
            if name in (LOOP, FILES):
                results[name].append(loop(context, count, with_files=name == FILES))
            else:
                results[name].append(search(context, 2 if name == PAIRS else 1))
            print(f"  {name:20} {results[name][-1].seconds:8,.1f} s for {count} trials")
            shutil.rmtree(folder / "search", ignore_errors=True)  # of the bare loop there is nothing
    check_agreement(results[LOOP] + results[FILES])
    seconds = {name: [one.seconds for one in found] for name, found in results.items()}
    figures = figures_of(results[LOOP], seconds[FILES], seconds[SEARCH], results[PAIRS], num_trials, num_steps)
    seconds["two at a time, training and scoring"] = [one.busy_seconds for one in results[PAIRS]]
    details: dict[str, Any] = {name: Samples(tuple(values)).as_details() for name, values in seconds.items()}
    report(figures, details | {"num_trials": num_trials, "num_steps": num_steps}, options.json)


def figures_of(
    loops: Sequence[Times],
    filed: Sequence[float],
    searches: Sequence[float],
    pairs: Sequence[Searched],
    num_trials: int,
    num_steps: int,
) -> dict[str, float]:
    """Ratios of medians.

    Args:
        loops: bare.
        filed: seconds of the loops with our files.
        searches: seconds of the searches one at a time.
        pairs: searches two at a time.
        num_trials: of all but the last.
        num_steps: of a trial.
    """
    loop, search_ = statistics.median(one.seconds for one in loops), statistics.median(searches)
    step = statistics.median(one.train_seconds for one in loops) / (num_trials * num_steps)
    score = statistics.median(one.score_seconds for one in loops) / num_trials
    idle, slowdown = [], []
    for seconds, busy, steps, scores in pairs:
        idle.append(1 - busy / (2 * seconds))
        slowdown.append(busy / (steps * step + scores * score))
    return {
        "search_vs_loop": loop / search_,
        "search_vs_loop_with_files": statistics.median(filed) / search_,
        "search_overhead_seconds_per_trial": (search_ - loop) / num_trials,
        "search_idle_share": statistics.median(idle),
        "search_slowdown_two_at_a_time": statistics.median(slowdown),
    }


def check_agreement(loops: Sequence[Times]) -> None:
    """Loops that come to other scores than the first have trained something else: there are no figures of them."""
    for one in loops:
        apart = max(abs(score - first) for score, first in zip(one.scores, loops[0].scores, strict=True))
        if apart > SCORE_TOLERANCE:
            raise SystemExit(f"scores of the loops must agree to {SCORE_TOLERANCE:g}, got {apart:.3g} between two")


def context_of(folder: Path, corpus: PreparedCorpus, num_trials: int, steps: int, scheduler: str) -> SearchContext:
    """A search for learning rates on the synthetic corpus."""
    document = {
        "kind": "search",
        "base": {
            "preset": "tiny",
            # The warm-up keeps its share of the base's steps: of as many as a trial has, it is as it stands here.
            "training": {"num_train_steps": steps},
            "optimizer": {"warmup_steps": max(1, steps // 20)},
            "evaluation": {"max_rows": 64},
            "compute": {"num_workers": 1, "cpus_per_worker": 1},
        },
        "space": {"optimizer.learning_rate": {"type": "log_uniform", "low": 1e-4, "high": 3e-3}},
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


def search(context: SearchContext, at_a_time: int) -> Searched:
    """Run it as a job does, but for the record in MLflow, which has a thread of its own there."""
    compute = context.search.compute.model_copy(update={"max_concurrent_trials": at_a_time})
    context = replace(context, search=context.search.model_copy(update={"compute": compute}))
    directory = JobDirectory(context.job_uri)
    ledger = Ledger(directory, METRIC, "min")
    reporter = ProgressReporter(directory, attempt=1, stage="train")
    start = time.perf_counter()
    watch, sweeper = TrialWatch(ledger, directory.uri), CheckpointSweeper(ledger, directory.uri, num_kept=1)

    def on_step() -> None:
        watch.look()
        if reporter.is_due():
            reporter.update(message="trials run", leaderboard=ledger.without_rungs(ledger.best(10)))
        sweeper.sweep()

    proposer = proposer_of(context.search, "min")
    run_trials(context, TrainingMeasure(METRIC), ledger, proposer, reporter, name="trials", on_step=on_step)
    seconds = time.perf_counter() - start
    ends = {one.state for one in ledger.trials}
    if not ends <= {"COMPLETED", "STOPPED"}:
        raise SystemExit(f"trials must come to their ends or be stopped, got {', '.join(sorted(ends))}")
    return Searched(
        seconds,
        sum(one.train_seconds + one.score_seconds for one in ledger.trials),
        sum(one.step for one in ledger.trials),
        sum(len(one.rungs) for one in ledger.trials),
    )


def loop(context: SearchContext, num_trials: int, *, with_files: bool) -> Times:
    """The points of the search, in a process of its own."""
    proposer = proposer_of(context.search, "min")
    points: list[Point] = []
    while len(points) < num_trials:
        proposal = proposer.next()
        assert proposal is not None
        points.append(proposal.point)
    with get_context("spawn").Pool(1) as pool:
        return pool.apply_async(run_loop, (context, points), {"with_files": with_files}).get(timeout=TIMEOUT_SECONDS)


if __name__ == "__main__":
    main()
