"""Between Ray Tune and the proposer: trials of earlier attempts first, then new points, each only once."""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ray.tune.search import Searcher

from pipelines.errors import PipelineError
from pipelines.searching.ledger import Ledger
from pipelines.searching.suggest import Proposer
from pipelines.searching.trial import RungResult, SearchContext, Trial, make_trial, read_error
from pipelines.searching.tune_parts import NotRestored
from pipelines.specs.space import Point
from pipelines.specs.spec_errors import SpecError
from pipelines.specs.trial_documents import TrialSummary

log = logging.getLogger(__name__)

MAX_REPEATS = 200
"""Points in a row that were tried before, after which a space is taken for exhausted."""


@dataclass
class _Entrant:
    """A trial on its way through Ray Tune."""

    summary: TrialSummary
    """As it was when it was handed out first in this attempt."""
    trial: Trial
    token: Any
    """The proposer's."""
    num_losses: int = 0
    told: set[int] = field(default_factory=set)
    """Rungs whose scores the proposer knows."""

    @property
    def is_replay(self) -> bool:
        """Of an earlier attempt, and done with: it only reads its scores once more. What failed is tried again."""
        return self.summary.state in ("COMPLETED", "STOPPED", "DIVERGED") and bool(self.summary.rungs)


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
        own = [one for one in ledger.trials if one.is_final == is_final]
        self._earlier = deque(one for one in own if one.state != "INVALID")
        self._lost: deque[_Entrant] = deque()
        self._folders = {one.folder for one in self._earlier}
        self._num_tried = len(self._earlier)
        self._invalid = Counter(_key(one.point) for one in own if one.state == "INVALID")
        self._running: dict[str, _Entrant] = {}
        self.was_cancelled = False
        """A trial was told to stop: it looks for the wish itself, and may know of it before the driver does."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]  # Ray forgets FINISHED
        """A trial's configuration; None where there may be more later, or the word that there are no more."""
        entrant = None if self.was_cancelled else self._next_entrant()
        if entrant is None:
            # A trial that runs may be lost, and is handed out once more then.
            return None if self._running else str(Searcher.FINISHED)
        self._running[trial_id] = entrant
        summary = entrant.summary
        return {
            "number": summary.number,
            "point": summary.point,
            "seed": summary.seed,
            "num_known": len(self._ledger[summary.number].rungs),
            "is_replay": entrant.is_replay,
        }

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial reached a rung and goes on."""
        entrant = self._running[trial_id]
        self._put_down(entrant)
        self._tell(entrant, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial has ended: by itself, by the scheduler, or by a fault."""
        entrant = self._running[trial_id]
        if error or result is None or "rung" not in result:
            self._lose(entrant)
        elif self._is_cancelled() or "cancelled" in result:
            self.was_cancelled = True  # the trial goes on in the next attempt
        elif "failure" in result:
            self._end_failed(entrant, str(result["failure"]))
        else:
            self._tell(entrant, result)  # of the rung that it is stopped at Ray Tune says nothing else
            self._end(entrant, result)
        del self._running[trial_id]

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is what lasts."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is what lasts."""

    def _next_entrant(self) -> _Entrant | None:
        if self._lost:
            return self._lost.popleft()
        if self._earlier:
            summary = self._earlier.popleft()
            trial = make_trial(self._context, summary.point, summary.seed)
            if summary.state == "FAILED":
                self._ledger.begins_again(summary.number)
            return _Entrant(summary, trial, self._proposer.again(summary.point))
        if self._num_trials is not None and self._num_tried >= self._num_trials:
            return None
        return self._new_entrant()

    def _new_entrant(self) -> _Entrant | None:
        repeats = 0
        while self._proposer.is_finite or repeats < MAX_REPEATS + len(self._folders):
            proposed = self._proposer.next()
            if proposed is None:
                return None
            token, point, seed = proposed
            try:
                trial = make_trial(self._context, point, seed)
            except SpecError as error:
                repeats += self._refuse(point, token, str(error))
                continue
            if trial.folder not in self._folders:
                self._folders.add(trial.folder)
                self._num_tried += 1
                return _Entrant(self._ledger.add(point, trial, is_final=self._is_final), trial, token)
            self._proposer.ended(token, None, "FAILED")  # what is known already teaches nothing
            repeats += 1
        log.info("space_exhausted", extra={"num_tried": self._num_tried})
        return None

    def _refuse(self, point: Point, token: Any, reason: str) -> bool:
        """Put down a point that is none, once; returns whether it was met before."""
        key = _key(point)
        if not self._invalid[key]:
            self._ledger.add_invalid(point, reason)
        self._invalid[key] += 1
        self._proposer.ended(token, None, "INVALID")
        # Of numbers no two are alike: so many that are none, and the space has little else.
        return self._invalid[key] > 1 or len(self._invalid) > max(100, 10 * (self._num_trials or 0))

    def _tell(self, entrant: _Entrant, result: dict[str, Any]) -> None:
        """Tell the proposer of a score; a process that was lost may have said it before."""
        rung, score = int(result["rung"]), float(result["score"])
        if math.isfinite(score) and rung not in entrant.told:
            entrant.told.add(rung)
            self._proposer.reached(entrant.token, rung, score)

    def _lose(self, entrant: _Entrant) -> None:
        """Hand it out again, unless it was lost as often as the base allows."""
        entrant.num_losses += 1
        reason = read_error(entrant.trial) or "its process was lost"
        log.warning("trial_lost", extra={"trial": entrant.summary.number, "reason": reason})
        if entrant.num_losses <= self._context.base.training.max_failures:
            self._lost.append(entrant)
        else:
            self._end_failed(entrant, f"{reason} ({entrant.num_losses} times)")

    def _end_failed(self, entrant: _Entrant, reason: str) -> None:
        self._ledger.ended(entrant.summary.number, "FAILED", reason)
        self._proposer.ended(entrant.token, None, "FAILED")

    def _end(self, entrant: _Entrant, result: dict[str, Any]) -> None:
        number, token, score = entrant.summary.number, entrant.token, float(result["score"])
        if entrant.is_replay:
            known = entrant.summary
            self._proposer.ended(token, known.score, "COMPLETED" if known.state == "COMPLETED" else "STOPPED")
            return
        self._put_down(entrant)
        if not math.isfinite(score):
            self._ledger.ended(number, "DIVERGED")
            self._proposer.ended(token, None, "STOPPED")
        elif int(result["rung"]) + 1 == len(entrant.trial.steps):
            self._ledger.ended(number, "COMPLETED")
            self._proposer.ended(token, score, "COMPLETED")
        else:
            self._ledger.ended(number, "STOPPED")
            self._proposer.ended(token, score, "STOPPED")

    def _put_down(self, entrant: _Entrant) -> None:
        if entrant.is_replay:
            return
        try:
            found = [RungResult.find(entrant.trial, rung) for rung in range(len(entrant.trial.steps))]
        except PipelineError as error:
            log.warning("rungs_unread", extra={"trial": entrant.summary.number, "reason": str(error)[:300]})
            return
        rungs = [one for one in itertools.takewhile(lambda one: one is not None, found) if one is not None]
        if rungs:
            self._ledger.reached(entrant.summary.number, rungs)


def _key(point: Point) -> str:
    return repr(sorted(point.items()))
