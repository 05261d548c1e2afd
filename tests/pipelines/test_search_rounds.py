"""The rounds of a search over attempts."""

from __future__ import annotations

from pathlib import Path

from search_world import WEIGHT, rung_context

from pipelines.job import JobDirectory, ProgressReporter
from pipelines.record.identity import RunIdentity
from pipelines.searching.ledger import Ledger
from pipelines.searching.measures import TrainingMeasure
from pipelines.searching.record import TrialRecorder
from pipelines.searching.rounds import Rounds
from pipelines.searching.trial import make_trial


def test_an_attempt_that_finds_a_final_round_searches_no_more(tmp_path: Path) -> None:
    """Else a trial that had failed might come to be one of the best now, and others have been trained as these."""
    context = rung_context(tmp_path, final={"num_best": 1, "seeds": [1, 2, 3]})
    directory = JobDirectory(context.job_uri)
    ledger = Ledger(directory, "fixed_corruption_auc", "max")
    failed = ledger.add({WEIGHT: 7.0}, make_trial(context, {WEIGHT: 7.0}), is_final=False)
    ledger.ended(failed.number, "FAILED", "its process was lost")
    ledger.add({}, make_trial(context, {}, seed=1), is_final=True)
    recorder = TrialRecorder(RunIdentity("http://nowhere", "0", "0"), directory, ledger)
    before = ledger.trials
    rounds = Rounds(context, TrainingMeasure("generator_loss"), ledger, ProgressReporter(directory), recorder, 2)
    rounds.search()
    assert ledger.trials == before
