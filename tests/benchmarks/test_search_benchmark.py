"""The search benchmark: its loops train and score what a search does, and in memory alone where they should."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
POINTS = [{"optimizer.learning_rate": rate} for rate in (2e-4, 2e-3)]


@pytest.fixture
def context(tmp_path, monkeypatch, one_thread):
    """Two trials of twelve steps on a small synthetic corpus."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from search import context_of
    from synthetic_corpus import write_token_corpus

    corpus = write_token_corpus(tmp_path / "corpus", 20_000, 300)
    return context_of(tmp_path / "search", corpus, len(POINTS), 12, "none")


@pytest.fixture
def one_thread(monkeypatch):
    """What a process of their own chooses for it, this one keeps as it is, but for the threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr("pipelines.training.workers.limit_threads", lambda _: None)
    monkeypatch.setattr("pipelines.training.workers.choose_cpu_kernels", lambda: None)
    yield
    torch.set_num_threads(before)


def test_the_synthetic_corpus_counts_its_tokens(context):
    counts = np.load(context.corpus.unigram_counts_uri)
    assert (counts.shape, counts.dtype, counts.sum()) == ((300,), np.int64, 20_000)


def test_both_loops_come_to_the_same_scores(context):
    from trial_loops import run_loop

    bare, filed = (run_loop(context, POINTS, with_files=with_files) for with_files in (False, True))
    assert bare.scores == pytest.approx(filed.scores, rel=1e-6)
    assert bare.scores[0] != bare.scores[1]
    for times in (bare, filed):
        assert 0 < times.train_seconds + times.score_seconds <= times.seconds


def test_the_bare_loop_leaves_no_file_and_the_other_all_of_them(context):
    from trial_loops import run_loop

    run_loop(context, POINTS, with_files=False)
    assert not Path(context.job_uri).exists()
    run_loop(context, POINTS, with_files=True)
    assert len(list(Path(context.job_uri).glob("trials/*/scored_*.json"))) == len(POINTS)
    assert len(list(Path(context.job_uri).glob("trials/*/checkpoints/*"))) == len(POINTS)


def test_trials_have_a_warm_up(context):
    """Without one the highest rates diverge, and a trial that ends early costs nothing."""
    from search import context_of

    assert context.base.optimizer.warmup_steps > 0
    longer = context_of(Path(context.job_uri).parent, context.corpus, 2, 200, "asha")
    assert longer.base.optimizer.warmup_steps == 10


def test_every_figure_has_a_meaning(context):
    from common import FIGURES
    from search import figures_of
    from trial_loops import Times

    loop = Times(10.0, 6.0, 2.0, (0.5, 0.5))
    figures = figures_of(
        loops=[loop], filed=[12.0], searches=[20.0], pairs=[(30.0, 24.0, 300, 4)], num_trials=2, num_steps=100
    )
    assert figures.keys() <= FIGURES.keys()
    assert json.loads(json.dumps(figures)) == pytest.approx(
        {
            "search_vs_loop": 0.5,
            "search_vs_loop_with_files": 0.6,
            "search_overhead_seconds_per_trial": 5.0,
            "search_idle_share": 0.6,
            # 300 steps of 0.03 s and 4 scores of 1 s, where 24 s were taken
            "search_slowdown_two_at_a_time": 24 / 13,
        }
    )
