"""The best settings and the base once more, from the start, with several seeds and the whole budget each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipelines.searching.compare import SettingRuns
from pipelines.searching.ledger import Ledger
from pipelines.searching.suggest import ListProposer, Proposal
from pipelines.searching.trial import SearchContext, make_trial
from pipelines.specs.search import FinalRoundSpec
from pipelines.specs.space import Point, grid_points
from pipelines.specs.spec_errors import SpecError
from pipelines.specs.trial_documents import TrialSummary


def study_points(context: SearchContext, ledger: Ledger) -> list[Point]:
    """Every combination of the grid, in its order; one that is the base goes by the base's name, which has no values,
    and two that are the same training count once.

    What is no pretraining spec is put down as such, once.
    """
    base, seen = make_trial(context, {}).folder, set[str]()
    known = {str(sorted(one.point.items())) for one in ledger.trials if one.state == "INVALID"}
    points: list[Point] = []
    for point in grid_points(context.search.space):
        try:
            folder = make_trial(context, point).folder
        except SpecError as error:
            if str(sorted(point.items())) not in known:
                ledger.add_invalid(point, str(error))
            continue
        if folder not in seen:
            seen.add(folder)
            points.append({} if folder == base else point)
    return points


def final_points(context: SearchContext, ledger: Ledger, final: FinalRoundSpec) -> list[Point]:
    """The base and the best trials; what is the base already counts once.

    Trials that were stopped take part where too few came to their ends: a scheduler may have been hasty.
    """
    points: list[Point] = [{}]
    folders = {make_trial(context, {}).folder}
    for trial in ledger.best(len(ledger.trials)):
        if len(points) > final.num_best:
            break
        if trial.folder not in folders:
            folders.add(trial.folder)
            points.append(trial.point)
    return points


def final_context(context: SearchContext) -> SearchContext:
    """Trials that are scored at their ends alone; of a study at every rung."""
    final = context.search.final
    return context if final is not None and final.is_study else replace(context, shares=(1.0,))


def final_proposer(points: Sequence[Point], seeds: Sequence[int]) -> ListProposer:
    """Seed by seed, so that an early look has something of every setting."""
    return ListProposer(Proposal(None, dict(point), seed) for seed in seeds for point in points)


def runs_of(points: Sequence[Point], trials: Sequence[TrialSummary]) -> list[SettingRuns]:
    """The trainings of each setting, as `compare_settings` takes them."""
    found = []
    for point in points:
        own = [one for one in trials if one.is_final and one.point == dict(point)]
        by_seed = {one.seed: one.score for one in own if one.state == "COMPLETED" and one.score is not None}
        diverged = tuple(one.seed for one in own if one.state == "DIVERGED")
        found.append(SettingRuns(point, by_seed, max((one.flops for one in own), default=0.0), diverged))
    return found
