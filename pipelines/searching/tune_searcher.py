"""Between Ray Tune and the proposer: trials of earlier attempts first, then new points, each only once."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ray.tune.search import Searcher

from pipelines import storage
from pipelines.errors import StorageError
from pipelines.searching.entrant import Entrant, is_done, read_rungs
from pipelines.searching.ledger import Ledger
from pipelines.searching.suggest import Proposer
from pipelines.searching.trial import (
    FOLDER,
    SearchContext,
    forget_process,
    make_trial,
    read_error,
)
from pipelines.searching.tune_parts import NotRestored
from pipelines.specs.space import Point
from pipelines.specs.spec_errors import SpecError
from pipelines.specs.trial_documents import TrialState
from pipelines.training.curve import say_alive

log = logging.getLogger(__name__)

MAX_REPEATS = 200
"""Points in a row that were tried before, after which a space whose points cannot be listed is taken for exhausted."""
PAUSE_SECONDS = 20.0
"""From a trial's first loss until it is handed out again; after each further one twice as long. With the three failures
that the base allows by default, a trial outlives a storage that is gone for two minutes."""
LONGEST_PAUSE_SECONDS = 600.0
REREAD_SECONDS = 10.0
"""Between two attempts to read scores that could not be read: each may wait for the storage's time-out."""


class _Unread(NamedTuple):
    """A trial that has come further than the ledger knows."""

    entrant: Entrant
    rung: int
    """That it has been scored at."""
    end: TrialState | None
    """How it ended, if it did: put down with its scores, for the next attempt asks one that has ended for no more."""
    error: StorageError


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
        # What is done with goes first: the others are held against its scores, and points are chosen by them.
        begun = (one for one in own if one.state != "INVALID")
        self._earlier = deque(sorted(begun, key=lambda one: not is_done(one)))
        self._lost: deque[Entrant] = deque()
        self._folders = {one.folder for one in self._earlier}
        self._num_tried = len(self._earlier)
        self._invalid = Counter(_key(one.point) for one in own if one.state == "INVALID")
        self._is_exhausted = False
        self._running: dict[str, Entrant] = {}
        self._unread: dict[int, _Unread] = {}
        self._reread_at = 0.0
        self.losses: list[str] = []
        """Why trials failed that were only lost, as often as the base allows: another attempt may fare better."""
        for one in ledger.trials:
            if one.state == "RUNNING":
                uri = storage.join(context.job_uri, FOLDER, one.folder)
                say_alive(uri, "waiting for its turn", is_waiting=True)  # what it said last is of another attempt
        self.was_cancelled = False
        """A trial was told to stop: it looks for the wish itself, and may know of it before the driver does."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]  # Ray forgets FINISHED
        """A trial's configuration; None where there may be more later, or the word that there are no more."""
        # Where nothing runs Ray Tune asks here again and again, and looks at nothing else meanwhile.
        if self._lost and not self._running and self._is_cancelled():
            self.was_cancelled = True
        entrant = None if self.was_cancelled else self._next_entrant()
        if entrant is None:
            # A trial that runs may be lost, and is handed out once more then; one that was lost waits for its time.
            may_come = self._running or (self._lost and not self.was_cancelled)
            return None if may_come else str(Searcher.FINISHED)
        if not entrant.is_replay:
            forget_process(entrant.trial)
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
        self._put_down(entrant, int(result["rung"]))
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

    def mend(self, *, now: bool = False) -> StorageError | None:
        """Read once more what could not be read, if it is time; at once with `now`.

        Returns:
            Why there is something that still cannot be read, or None.
        """
        if self._unread and (now or time.monotonic() >= self._reread_at):
            for unread in tuple(self._unread.values()):
                self._put_down(unread.entrant, unread.rung, unread.end)
            self._reread_at = time.monotonic() + REREAD_SECONDS
        return next((one.error for one in self._unread.values()), None)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is what lasts."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is what lasts."""

    def _next_entrant(self) -> Entrant | None:
        now = time.monotonic()
        for lost in self._lost:
            if lost.not_before <= now:
                self._lost.remove(lost)
                return lost
        if self._earlier:
            summary = self._earlier.popleft()
            trial = make_trial(self._context, summary.point, summary.seed)
            if summary.state == "FAILED":
                self._ledger.begins_again(summary.number)
            return Entrant(summary, trial, self._proposer.again(summary.point))
        if self._is_exhausted or (self._num_trials is not None and self._num_tried >= self._num_trials):
            return None
        return self._new_entrant()

    def _new_entrant(self) -> Entrant | None:
        # Of a space that is listed every point that was tried, or is none, may come once more.
        repeats, most = 0, MAX_REPEATS + len(self._folders) + len(self._invalid)
        while self._proposer.is_finite or repeats < most:
            proposed = self._proposer.next(repeats)
            if proposed is None:
                break
            token, point, seed = proposed
            try:
                trial = make_trial(self._context, point, seed)
            except SpecError as error:
                repeats += self._refuse(point, token, str(error))
                continue
            if trial.folder not in self._folders:
                self._folders.add(trial.folder)
                self._num_tried += 1
                return Entrant(self._ledger.add(point, trial, is_final=self._is_final), trial, token)
            self._proposer.ended(token, None, "FAILED")  # what is known already teaches nothing
            repeats += 1
        self._is_exhausted = True  # Ray Tune asks again and again while trials run, and an answer may cost seconds
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

    def _tell(self, entrant: Entrant, result: dict[str, Any]) -> None:
        """Tell the proposer of a score; a process that was lost may have said it before."""
        rung, score = int(result["rung"]), float(result["score"])
        if math.isfinite(score) and rung not in entrant.told:
            entrant.told.add(rung)
            self._proposer.reached(entrant.token, rung, score)

    def _lose(self, entrant: Entrant) -> None:
        """Hand it out again after a pause, unless it was lost as often as the base allows."""
        entrant.num_losses += 1
        said = read_error(entrant.trial)
        reason = said.reason if said else "its process was lost"
        forget_process(entrant.trial)
        log.warning("trial_lost", extra={"trial": entrant.summary.number, "reason": reason})
        if entrant.num_losses <= self._context.base.training.max_failures:
            pause = min(PAUSE_SECONDS * 2.0 ** (entrant.num_losses - 1), LONGEST_PAUSE_SECONDS)
            entrant.not_before = time.monotonic() + pause
            self._lost.append(entrant)
        else:
            reason = f"{reason} ({entrant.num_losses} times)"
            if said is None or said.is_passing:
                self.losses.append(f"trial {entrant.summary.number}: {reason}")
            self._end_failed(entrant, reason)

    def _end_failed(self, entrant: Entrant, reason: str) -> None:
        self._unread.pop(entrant.summary.number, None)  # the next attempt tries it again, and reads all
        self._ledger.ended(entrant.summary.number, "FAILED", reason)
        self._proposer.ended(entrant.token, None, "FAILED")

    def _end(self, entrant: Entrant, result: dict[str, Any]) -> None:
        token, known, rung, score = entrant.token, entrant.summary, int(result["rung"]), float(result["score"])
        if entrant.is_replay:
            best = None if known.state == "DIVERGED" else known.score
            self._proposer.ended(token, best, "COMPLETED" if known.state == "COMPLETED" else "STOPPED")
        elif not math.isfinite(score):
            self._put_down(entrant, rung, "DIVERGED")
            self._proposer.ended(token, None, "STOPPED")
        elif rung + 1 == len(entrant.trial.steps):
            self._put_down(entrant, rung, "COMPLETED")
            self._proposer.ended(token, score, "COMPLETED")
        else:
            self._put_down(entrant, rung, "STOPPED")
            self._proposer.ended(token, score, "STOPPED")

    def _put_down(self, entrant: Entrant, rung: int, end: TrialState | None = None) -> None:
        """Note the scores up to a rung, and the end if it is one; what cannot be read now, `mend` notes later."""
        if entrant.is_replay:
            return
        number = entrant.summary.number
        try:
            rungs = read_rungs(entrant.trial, rung)
        except StorageError as error:
            log.warning("rungs_unread", extra={"trial": number, "reason": str(error)[:300]})
            self._unread[number] = _Unread(entrant, rung, end, error)
            if end is not None:
                say_alive(entrant.trial.uri, "waiting for its scores to be read", is_waiting=True)
            return
        self._unread.pop(number, None)
        self._ledger.reached(number, rungs)
        if end is not None:
            self._ledger.ended(number, end)


def _key(point: Point) -> str:
    return repr(sorted(point.items()))
