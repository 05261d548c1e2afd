"""Trials that hang are found, and those that wait are left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from search_world import rung_context

from pipelines import search, storage
from pipelines.errors import StorageError
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.searching import watch
from pipelines.searching.ledger import Ledger
from pipelines.searching.trial import Trial, forget_process, make_trial
from pipelines.searching.watch import STALL_SECONDS, TrialWatch
from pipelines.training.curve import PROGRESS_FILE, say_alive


class Watched:
    """One trial that runs, and a watch whose clock the test has."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.context = context = rung_context(folder)
        self.trial: Trial = make_trial(context, {})
        self.ledger = Ledger(JobDirectory(context.job_uri), "score", "max")
        self.ledger.add({}, self.trial)
        self.now = 0.0
        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: self.now))
        self._watch = TrialWatch(self.ledger, context.job_uri)

    def after(self, seconds: float) -> None:
        """Look when so much time has passed."""
        self.now += seconds
        self._watch.look()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


def test_a_trial_that_began_and_says_nothing_more_hangs(watched: Watched) -> None:
    say_alive(watched.trial.uri, "training, step 7")
    watched.after(60)
    watched.after(STALL_SECONDS - 60)
    with pytest.raises(TimeoutError, match=r"trial 0 said nothing for \d+ s, while training, step 7"):
        watched.after(120)


def test_a_trial_that_says_the_same_again_lives(watched: Watched) -> None:
    for _ in range(3):
        say_alive(watched.trial.uri, "finetuning on cola at step 5")
        watched.after(STALL_SECONDS - 1)


def test_a_trial_that_waits_may_wait_for_days(watched: Watched) -> None:
    """For its first process, for one after a loss, or for its workers."""
    watched.after(60)
    watched.after(10 * STALL_SECONDS)
    say_alive(watched.trial.uri, "training, step 7")
    watched.after(60)
    forget_process(watched.trial)
    watched.after(60)
    watched.after(10 * STALL_SECONDS)


def test_the_clock_of_a_trial_that_waited_starts_with_its_process(watched: Watched) -> None:
    say_alive(watched.trial.uri, "waiting for workers", is_waiting=True)
    watched.after(60)
    watched.after(2 * STALL_SECONDS)
    say_alive(watched.trial.uri, "training, step 1")
    watched.after(60)
    watched.after(STALL_SECONDS - 60)
    with pytest.raises(TimeoutError):
        watched.after(120)


def test_a_sign_that_cannot_be_read_is_none_of_life(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    say_alive(watched.trial.uri, "training, step 7")
    watched.after(60)

    def unreachable(uri: str) -> bool:
        raise StorageError(uri, "out of reach")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "exists", unreachable)
        watched.after(STALL_SECONDS)
    with pytest.raises(TimeoutError):
        watched.after(60)


def test_a_trial_that_has_ended_says_nothing_any_more(watched: Watched) -> None:
    say_alive(watched.trial.uri, "training, step 7")
    watched.after(60)
    watched.ledger.ended(0, "STOPPED")
    watched.after(2 * STALL_SECONDS)


def test_a_sign_of_an_earlier_version_is_one_of_life(watched: Watched) -> None:
    storage.write_json(storage.join(watched.trial.uri, PROGRESS_FILE), {"doing": "training, step 7"})
    watched.after(60)
    with pytest.raises(TimeoutError):
        watched.after(STALL_SECONDS + 1)


def test_the_winner_is_watched_while_it_is_trained_once_more(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ran to its end before, and what it said then says nothing of now."""
    say_alive(watched.trial.uri, "scoring step 20")
    directory = JobDirectory(watched.context.job_uri)

    def hangs(function: object, arguments: object, compute: object, waiting: Callable[[int], None]) -> Iterator[None]:
        for seconds in (60.0, 2 * STALL_SECONDS):
            watched.now += seconds
            waiting(0)
        say_alive(watched.trial.uri, "training, step 7")
        for seconds in (60.0, STALL_SECONDS, 60.0):
            watched.now += seconds
            waiting(0)
        yield from ()

    monkeypatch.setattr(search, "run_side_by_side", hangs)
    monkeypatch.setattr(search, "evaluate_on_cluster", lambda *_: None)
    with pytest.raises(TimeoutError, match=r"the winner said nothing for \d+ s, while training, step 7"):
        search._export(watched.trial, watched.context.search, directory, ProgressReporter(directory))
