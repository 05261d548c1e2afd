"""The two rounds of a search: trials of many points, then the best of them once more with several seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipelines.errors import PipelineError
from pipelines.job import ProgressReporter
from pipelines.searching.compare import compare_settings
from pipelines.searching.final_round import final_context, final_points, final_proposer, runs_of, study_points
from pipelines.searching.keep import CheckpointSweeper
from pipelines.searching.ledger import Ledger
from pipelines.searching.measures import Measure
from pipelines.searching.record import TrialRecorder
from pipelines.searching.run_trials import run_trials
from pipelines.searching.study import rung_spreads
from pipelines.searching.suggest import proposer_of
from pipelines.searching.trial import SearchContext
from pipelines.searching.watch import TrialWatch
from pipelines.specs.trial_documents import SettingScores

LEADERBOARD = 10


@dataclass(frozen=True)
class Rounds:
    """One attempt at the rounds of a search; what earlier attempts had done is gone on with."""

    context: SearchContext
    measure: Measure
    ledger: Ledger
    reporter: ProgressReporter
    recorder: TrialRecorder
    attempt: int

    def search(self) -> None:
        """Try the points that the searcher proposes, unless an earlier attempt came to the final round: settings that
        are trained there stay the best, whatever a trial that had failed would come to now.

        Raises:
            PipelineError: none came to a score, or see `run_trials`.
            ConnectionError: trials were lost, and none of the others came to a score: another attempt may fare better.
        """
        if any(one.is_final for one in self.ledger.trials):
            return
        search = self.context.search
        sweeper = CheckpointSweeper(self.ledger, self.context.job_uri, search.final.num_best if search.final else 1)
        tell = self._teller(self._report_search)

        def tell_and_sweep() -> None:
            tell()
            sweeper.sweep()

        run_trials(
            self.context,
            self.measure,
            self.ledger,
            proposer_of(search, self.ledger.mode, len(self.ledger.trials)),
            self.reporter,
            name=f"trials-a{self.attempt}",
            on_step=tell_and_sweep,
        )
        tell_and_sweep()
        if not self.ledger.best(1):
            first = next((one.reason for one in self.ledger.trials if one.reason), "no point of the space was tried")
            raise PipelineError(f"no trial came to a score: {first}")

    def settle(self) -> tuple[SettingScores, ...]:
        """Train the best points, or all of a study, with every seed of the final round, and compare them.

        Returns:
            Every setting with its scores, best first; none where the spec has no final round.

        Raises:
            PipelineError: no point can be trained, or see `run_trials`.
            ConnectionError: trials were lost, and none of the others came to a score: another attempt may fare better.
        """
        final = self.context.search.final
        if final is None:
            return ()
        ledger = self.ledger
        points = study_points(self.context, ledger) if final.is_study else final_points(self.context, ledger, final)
        if not points:
            raise PipelineError(f"no point of the space could be tried: {ledger.trials[-1].reason}")
        num_runs = len(points) * len(final.seeds)
        tell = self._teller(lambda: self._report_final(num_runs))
        run_trials(
            final_context(self.context),
            self.measure,
            ledger,
            final_proposer(points, final.seeds),
            self.reporter,
            name=f"final-a{self.attempt}",
            is_final=True,
            on_step=tell,
        )
        tell()
        settings = compare_settings(runs_of(points, ledger.trials), ledger.mode, final.confidence)
        return tuple(one.model_copy(update={"rungs": rung_spreads(one.point, ledger.trials)}) for one in settings)

    def _teller(self, report: Callable[[], None]) -> Callable[[], None]:
        watch = TrialWatch(self.ledger, self.context.job_uri)

        def tell() -> None:
            watch.look()
            self.recorder.hand_over()
            if self.reporter.is_due():
                report()

        return tell

    def _report_search(self) -> None:
        counts = self.ledger.counts()
        num_running = counts.pop("RUNNING", 0)
        done = ", ".join(f"{number} {state.lower()}" for state, number in sorted(counts.items()))
        best = self.ledger.without_rungs(self.ledger.best(LEADERBOARD))
        shown = f"; best {self.ledger.metric} {best[0].score:.4g}" if best else ""
        num_ended = sum(number for state, number in counts.items() if state != "INVALID")
        self.reporter.update(
            message=f"{num_running} trials running{', ' if done else ''}{done}{shown}",
            fraction=min(1.0, num_ended / self.context.search.most_trials),
            leaderboard=best,
        )

    def _report_final(self, num_runs: int) -> None:
        num_done = sum(one.is_final and one.state != "RUNNING" for one in self.ledger.trials)
        self.reporter.update(
            message=f"final round: {num_done} of {num_runs} trainings", fraction=min(1.0, num_done / num_runs)
        )
