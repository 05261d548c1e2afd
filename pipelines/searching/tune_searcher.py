"""Between Ray Tune and the proposer: trials of earlier attempts first, then new points, each only once."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable
from typing import Any

from ray.tune.search import Searcher

from pipelines.errors import PipelineError
from pipelines.searching.ledger import Ledger
from pipelines.searching.suggest import Proposer
from pipelines.searching.trial import RungResult, SearchContext, Trial, make_trial
from pipelines.searching.tune_parts import NotRestored
from pipelines.specs.spec_errors import SpecError
from pipelines.specs.trial_documents import TrialSummary

log = logging.getLogger(__name__)

MAX_REPEATS = 200
"""Points in a row that were tried before, after which the space is taken for exhausted."""


class TrialSearcher(NotRestored, Searcher):
    """Hands out trials and keeps the ledger.

    What an earlier attempt had begun is handed out again, finished trials too: these only read their scores, so that
    the scheduler and the proposer know all that they knew.

    Args:
        context: of the search.
        ledger: of the job.
        proposer: of points.
        num_trials: points that are tried at most; None as many as there are.
        is_final: whether these are the trials of the final round.
        is_cancelled: whether the job was asked to stop: trials that end then go on in the next attempt.
    """

    def __init__(
        self,
        context: SearchContext,
        ledger: Ledger,
        proposer: Proposer,
        num_trials: int | None,
        is_final: bool,
        is_cancelled: Callable[[], bool],
    ) -> None:
        super().__init__(metric="score", mode="max" if ledger.mode == "max" else "min")
        self._context = context
        self._ledger = ledger
        self._proposer = proposer
        self._num_trials = num_trials
        self._is_final = is_final
        self._is_cancelled = is_cancelled
        self._earlier = [one for one in ledger.trials if one.is_final == is_final and one.state != "INVALID"]
        self._folders = {one.folder for one in self._earlier}
        self._num_tried = len(self._earlier)
        self._num_invalid = sum(one.state == "INVALID" for one in ledger.trials)
        self._running: dict[str, tuple[TrialSummary, Trial, Any]] = {}
        self._told: set[tuple[str, int]] = set()

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]  # Ray forgets FINISHED
        """A trial's configuration, or the word that there are no more."""
        if self._earlier:
            summary = self._earlier.pop(0)
            trial = make_trial(self._context, summary.point, summary.seed)
            self._running[trial_id] = (summary, trial, self._proposer.again(summary.point))
            end_rung = len(summary.rungs) - 1 if _has_scores_for_good(summary) else None
            return {"number": summary.number, "point": summary.point, "seed": summary.seed, "end_rung": end_rung}
        if self._num_trials is not None and self._num_tried >= self._num_trials:
            return str(Searcher.FINISHED)
        found = self._new_point()
        if found is None:
            return str(Searcher.FINISHED)
        token, point, trial = found
        summary = self._ledger.add(point, trial, is_final=self._is_final)
        self._num_tried += 1
        self._running[trial_id] = (summary, trial, token)
        return {"number": summary.number, "point": point, "seed": summary.seed, "end_rung": None}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial reached a rung."""
        summary, trial, token = self._running[trial_id]
        self._put_down(summary, trial)
        rung = int(result["rung"])
        # A process that was lost may have said it before.
        if math.isfinite(result["score"]) and (trial_id, rung) not in self._told:
            self._told.add((trial_id, rung))
            self._proposer.reached(token, rung, float(result["score"]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial has ended: by itself, by the scheduler, or for good by a fault."""
        summary, trial, token = self._running.pop(trial_id)
        if _has_scores_for_good(summary):
            self._proposer.ended(token, summary.score, "COMPLETED" if summary.state == "COMPLETED" else "STOPPED")
            return
        if self._is_cancelled() or (result or {}).get("cancelled"):
            return  # it goes on in the next attempt
        if error or result is None or "rung" not in result:
            self._ledger.ended(summary.number, "FAILED", "its process was lost again and again")
            self._proposer.ended(token, None, "FAILED")
            return
        if "failure" in result:
            self._ledger.ended(summary.number, "FAILED", str(result["failure"]))
            self._proposer.ended(token, None, "FAILED")
            return
        self._put_down(summary, trial)
        score = float(result["score"])
        is_last = int(result["rung"]) + 1 == len(trial.steps)
        if not math.isfinite(score):
            self._ledger.ended(summary.number, "DIVERGED")
            self._proposer.ended(token, None, "STOPPED")
        elif is_last:
            self._ledger.ended(summary.number, "COMPLETED")
            self._proposer.ended(token, score, "COMPLETED")
        else:
            self._ledger.ended(summary.number, "STOPPED")
            self._proposer.ended(token, score, "STOPPED")

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is what lasts."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is what lasts."""

    def _new_point(self) -> tuple[Any, dict[str, Any], Trial] | None:
        repeats = 0
        while repeats < MAX_REPEATS or self._num_trials is None:
            proposed = self._proposer.next()
            if proposed is None:
                return None
            token, point, seed = proposed
            try:
                trial = make_trial(self._context, point, seed)
            except SpecError as error:
                self._ledger.add_invalid(point, str(error))
                self._proposer.ended(token, None, "INVALID")
                self._num_invalid += 1
                if self._num_invalid > max(100, 10 * (self._num_trials or 0)):
                    log.warning("space_mostly_invalid", extra={"num_invalid": self._num_invalid})
                    return None
                continue
            if trial.folder not in self._folders:
                self._folders.add(trial.folder)
                return token, point, trial
            self._proposer.ended(token, None, "FAILED")  # what is known already teaches nothing
            repeats += 1
        log.info("space_exhausted", extra={"num_tried": self._num_tried})
        return None

    def _put_down(self, summary: TrialSummary, trial: Trial) -> None:
        if _has_scores_for_good(summary):
            return
        try:
            found = [RungResult.find(trial, rung) for rung in range(len(trial.steps))]
        except PipelineError as error:
            log.warning("rungs_unread", extra={"number": summary.number, "reason": str(error)[:300]})
            return
        rungs = list(itertools.takewhile(lambda one: one is not None, found))
        if rungs:
            self._ledger.reached(summary.number, [one for one in rungs if one is not None])


def _has_scores_for_good(trial: TrialSummary) -> bool:
    """Of an earlier attempt, and done with: it only reads its scores once more. What failed is tried again."""
    return trial.state in ("COMPLETED", "STOPPED", "DIVERGED") and bool(trial.rungs)
