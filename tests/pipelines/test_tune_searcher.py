"""Between Ray Tune and the list of trials, without Ray: losses, scores that cannot be read, and signs of life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from search_world import WEIGHT, rung_context

from pipelines import storage
from pipelines.errors import StorageError
from pipelines.job import JobDirectory
from pipelines.searching import tune_searcher
from pipelines.searching.ledger import Ledger
from pipelines.searching.suggest import ListProposer, Proposal
from pipelines.searching.trial import ERROR_FILE, RungResult, SearchContext, Trial, make_trial, write_error
from pipelines.searching.tune_searcher import PAUSE_SECONDS, TrialSearcher
from pipelines.specs.space import Point
from pipelines.training.curve import PROGRESS_FILE, say_alive

WEIGHTS = (1.0, 2.0, 3.0)


class Clock:
    """Time as the test has it."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Heard(ListProposer):
    """Points in order; it remembers how they ended."""

    def __init__(self) -> None:
        super().__init__(Proposal(None, {WEIGHT: weight}) for weight in WEIGHTS)
        self.endings: list[tuple[float | None, str]] = []

    def again(self, point: Point) -> None:
        pass

    def ended(self, token: None, score: float | None, how: str) -> None:
        self.endings.append((score, how))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tune_searcher, "time", clock)
    return clock


@pytest.fixture
def context(tmp_path: Path) -> SearchContext:
    return rung_context(tmp_path)


class Attempt:
    """An attempt at a search of three points."""

    def __init__(self, context: SearchContext) -> None:
        self.ledger = Ledger(JobDirectory(context.job_uri), "score", "max")
        self.proposer = Heard()
        self.is_cancelled = False
        self.searcher = TrialSearcher(
            context, self.ledger, self.proposer, len(WEIGHTS), False, lambda: self.is_cancelled
        )

    def number(self, launch: str) -> int | str | None:
        """Of the trial that is handed out; else what is said."""
        config = self.searcher.suggest(launch)
        return int(config["number"]) if isinstance(config, dict) else config


@pytest.fixture
def attempt(context: SearchContext) -> Attempt:
    return Attempt(context)


def trial_of(context: SearchContext, number: int) -> Trial:
    return make_trial(context, {WEIGHT: WEIGHTS[number]})


def scored(trial: Trial, rung: int, score: float | None = 0.5) -> dict[str, Any]:
    """Put a score down as its process does; returns what it tells."""
    RungResult(trial.steps[rung], 100, 1e6, score, {}, (), 1.0, 1.0).write(trial, rung)
    return {"rung": rung, "score": float("nan") if score is None else score}


def unreadable(trial: Trial, rung: int) -> RungResult | None:
    raise StorageError(trial.uri, "out of reach")


# --- losses


def test_a_trial_that_is_lost_waits_and_longer_each_time(attempt: Attempt, clock: Clock) -> None:
    """Those that have not run yet go first."""
    assert attempt.number("a") == 0
    attempt.searcher.on_trial_complete("a", error=True)
    assert attempt.number("b") == 1
    clock.now += PAUSE_SECONDS
    assert attempt.number("c") == 0
    attempt.searcher.on_trial_complete("c", error=True)
    assert attempt.number("d") == 2
    clock.now += PAUSE_SECONDS
    assert attempt.number("e") is None, "the second pause is twice as long"
    clock.now += PAUSE_SECONDS
    assert attempt.number("f") == 0


def test_a_storage_that_is_gone_for_two_minutes_ends_no_trial(attempt: Attempt, clock: Clock) -> None:
    until = clock.now + 120
    waiting = set(range(len(WEIGHTS)))
    for launch in range(1000):
        number = attempt.number(str(launch))
        if number is None:
            clock.now += 1  # as Ray Tune does
        elif clock.now < until:
            attempt.searcher.on_trial_complete(str(launch), error=True)
        else:
            waiting.discard(int(number))
            if not waiting:
                break
    assert not waiting
    assert {one.state for one in attempt.ledger.trials} == {"RUNNING"}


def test_where_all_were_lost_there_is_no_end_until_they_had_their_time(attempt: Attempt, clock: Clock) -> None:
    for launch in ("a", "b", "c"):
        attempt.number(launch)
        attempt.searcher.on_trial_complete(launch, error=True)
    assert attempt.number("d") is None
    clock.now += PAUSE_SECONDS
    assert attempt.number("d") == 0


def test_who_cancels_waits_for_no_lost_trial(attempt: Attempt, clock: Clock) -> None:
    attempt.number("a")
    attempt.searcher.on_trial_complete("a", error=True)
    attempt.is_cancelled = True
    assert attempt.number("b") == TrialSearcher.FINISHED
    assert attempt.searcher.was_cancelled


def test_a_process_that_is_killed_does_not_die_of_what_the_one_before_said(
    attempt: Attempt, context: SearchContext, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_searcher, "PAUSE_SECONDS", 0.0)
    for launch in range(4):
        assert attempt.number(str(launch)) == 0
        if launch == 0:
            write_error(trial_of(context, 0), ValueError("a tensor of no shape"), is_passing=False)
        attempt.searcher.on_trial_complete(str(launch), error=True)
    assert attempt.ledger[0].reason == "its process was lost (4 times)"
    assert attempt.searcher.losses == ["trial 0: its process was lost (4 times)"]


def test_what_an_earlier_attempt_died_of_is_not_said_again(context: SearchContext, clock: Clock) -> None:
    write_error(trial_of(context, 0), ValueError("a tensor of no shape"), is_passing=False)
    assert Attempt(context).number("a") == 0
    assert not storage.exists(storage.join(trial_of(context, 0).uri, ERROR_FILE))


@pytest.mark.parametrize("is_passing", [True, False])
def test_only_faults_that_may_pass_are_worth_another_attempt(
    attempt: Attempt, context: SearchContext, clock: Clock, monkeypatch: pytest.MonkeyPatch, is_passing: bool
) -> None:
    monkeypatch.setattr(tune_searcher, "PAUSE_SECONDS", 0.0)
    for launch in range(4):
        assert attempt.number(str(launch)) == 0
        write_error(trial_of(context, 0), OSError("it is gone"), is_passing=is_passing)
        attempt.searcher.on_trial_complete(str(launch), error=True)
    assert attempt.ledger[0].reason == "OSError: it is gone (4 times)"
    assert bool(attempt.searcher.losses) == is_passing


# --- signs of life


def test_a_trial_without_a_process_says_that_it_waits(context: SearchContext, clock: Clock) -> None:
    """After a loss, when it is handed out again, and in the next attempt before it is its turn."""

    def sign(number: int) -> Any:
        return storage.read_json(storage.join(trial_of(context, number).uri, PROGRESS_FILE))

    attempt = Attempt(context)
    attempt.number("a")
    say_alive(trial_of(context, 0).uri, "training, step 3")
    attempt.searcher.on_trial_complete("a", error=True)
    assert sign(0)["is_waiting"]
    attempt.number("b")
    say_alive(trial_of(context, 0).uri, "a process that did not know that it was lost")
    clock.now += PAUSE_SECONDS
    attempt.number("c")
    assert sign(0)["is_waiting"]
    for number in range(2):
        say_alive(trial_of(context, number).uri, "training, step 9")
    attempt.ledger.write(now=True)
    Attempt(context)
    assert [sign(number)["is_waiting"] for number in range(2)] == [True, True]


# --- scores that cannot be read


@pytest.mark.parametrize(
    ("rung", "score", "state"), [(2, 0.5, "COMPLETED"), (1, 0.5, "STOPPED"), (1, None, "DIVERGED")]
)
def test_no_trial_has_ended_before_its_scores_are_read(
    attempt: Attempt,
    context: SearchContext,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    rung: int,
    score: float | None,
    state: str,
) -> None:
    """The proposer knows the score at once: it was told of it."""
    attempt.number("a")
    trial = trial_of(context, 0)
    results = [scored(trial, one, score if one == rung else 0.3) for one in range(rung + 1)]
    with monkeypatch.context() as patch:
        patch.setattr(RungResult, "find", unreadable)
        for result in results[:-1]:
            attempt.searcher.on_trial_result("a", result)
        attempt.searcher.on_trial_complete("a", results[-1])
        assert attempt.proposer.endings == [(score, "COMPLETED" if state == "COMPLETED" else "STOPPED")]
        assert isinstance(attempt.searcher.mend(now=True), StorageError)
        assert (attempt.ledger[0].state, attempt.ledger[0].rungs) == ("RUNNING", ())
    assert attempt.searcher.mend() is not None, "it is read again after a while, and not at once"
    clock.now += tune_searcher.REREAD_SECONDS
    assert attempt.searcher.mend() is None
    ended = attempt.ledger[0]
    assert (ended.state, len(ended.rungs), ended.rungs[-1].score) == (state, rung + 1, score)


def test_a_score_that_is_not_there_yet_is_waited_for(attempt: Attempt, context: SearchContext, clock: Clock) -> None:
    attempt.number("a")
    trial = trial_of(context, 0)
    for rung in range(2):
        scored(trial, rung)
    attempt.searcher.on_trial_complete("a", {"rung": 2, "score": 0.5})
    assert attempt.ledger[0].state == "RUNNING"
    assert "must hold scores at 3 rungs, got 2" in str(attempt.searcher.mend(now=True))
    scored(trial, 2)
    assert attempt.searcher.mend(now=True) is None
    assert attempt.ledger[0].state == "COMPLETED"


def test_a_trial_that_failed_is_not_waited_for(
    attempt: Attempt, context: SearchContext, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt.number("a")
    result = scored(trial_of(context, 0), 0)
    with monkeypatch.context() as patch:
        patch.setattr(RungResult, "find", unreadable)
        attempt.searcher.on_trial_result("a", result)
    failure = {"rung": 1, "score": float("nan"), "failure": "the pairs are gone"}
    attempt.searcher.on_trial_complete("a", failure)
    assert attempt.searcher.mend(now=True) is None
    assert (attempt.ledger[0].state, attempt.ledger[0].reason) == ("FAILED", "the pairs are gone")


def test_a_trial_that_diverged_is_the_worst_in_the_next_attempt_too(context: SearchContext, clock: Clock) -> None:
    first = Attempt(context)
    first.number("a")
    trial = trial_of(context, 0)
    first.searcher.on_trial_result("a", scored(trial, 0, 0.9))
    first.searcher.on_trial_complete("a", scored(trial, 1, None))
    first.ledger.write(now=True)
    assert (first.ledger[0].state, first.ledger[0].score) == ("DIVERGED", 0.9)
    again = Attempt(context)
    again.number("b")
    again.searcher.on_trial_complete("b", {"rung": 1, "score": float("nan")})
    assert again.proposer.endings == first.proposer.endings == [(None, "STOPPED")]
