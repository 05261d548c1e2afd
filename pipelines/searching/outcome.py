"""A search in one document: what was tried, what came out, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.searching.agreement import loss_agreement
from pipelines.searching.compare import Choice, best_of_study
from pipelines.searching.ledger import Ledger
from pipelines.searching.trial import SearchContext, make_trial
from pipelines.specs.comparing import FixedCorruptionObjective
from pipelines.specs.plan import flops_until
from pipelines.specs.space import Point, Value
from pipelines.specs.trial_documents import SearchOutcome, SettingScores, TrialSummary, values_of
from pipelines.specs.trials import reference_spec, shown_point

LEADERBOARD = 10


def make_outcome(
    context: SearchContext,
    ledger: Ledger,
    settings: Sequence[SettingScores],
    winner: Point,
    choice: Choice | None,
) -> SearchOutcome:
    """Everything that is known at the end.

    Args:
        context: of the search.
        ledger: with all trials ended.
        settings: of the final round, the best first; none without one.
        winner: the point that is taken, empty for the base.
        choice: what the final round says of it; None without one, and after a study.
    """
    trials = [one for one in ledger.trials if not one.is_final and one.state != "INVALID"]
    best = ledger.best(LEADERBOARD)
    completed = [one for one in best if one.state == "COMPLETED"]
    return SearchOutcome(
        metric=ledger.metric,
        mode=ledger.mode,
        num_trials=len(trials),
        num_by_state=ledger.counts(),
        best=next(iter(completed or best), None),
        leaderboard=ledger.without_rungs(best),
        settings=tuple(settings),
        is_study=context.search.final is not None and context.search.final.is_study,
        base=_base_values(context),
        winner=dict(winner),
        is_better_than_base=None if choice is None else choice.is_better,
        verdict=_verdict(context, ledger, settings, winner, choice),
        loss_agreement=loss_agreement(trials, ledger.mode),
        flops_trials=sum(one.flops for one in trials),
        flops_final=_new_flops(ledger.trials),
        flops_reference=_reference_flops(context),
        flops_without_stopping=sum(_whole_flops(context, one) for one in trials),
    )


def _base_values(context: SearchContext) -> dict[str, Value]:
    """What the base has at the paths of the space."""
    fields = context.base.model_dump(mode="json")
    split = {path: path.partition(".") for path in context.search.space}
    return {path: fields[section][name] for path, (section, _, name) in split.items()}


def _verdict(
    context: SearchContext,
    ledger: Ledger,
    settings: Sequence[SettingScores],
    winner: Point,
    choice: Choice | None,
) -> str:
    if context.search.final is not None and context.search.final.is_study:
        return _study_verdict(context, ledger, settings, len(context.search.final.seeds))
    if choice is None:
        best = ledger.best(1)[0]
        score = "none" if best.score is None else f"{best.score:.4g}"
        return (
            f"Of single trainings, {shown_point(winner) or 'the base'} has the best {ledger.metric}, {score}. "
            "Without a final round nothing is known of seed noise."
        )
    final = context.search.final
    assert final is not None
    return _comparison(ledger.metric, settings, choice, len(final.seeds), final.confidence) + _lost(ledger)


def _study_verdict(context: SearchContext, ledger: Ledger, settings: Sequence[SettingScores], num_seeds: int) -> str:
    best, base = best_of_study(settings), _base_values(context)
    said = f"A study of {len(settings)} settings with {num_seeds} seeds each: the best mean {ledger.metric} is "
    said += _shown(best) if best is None else f"{_shown(best)}, of {shown_point(values_of(best, base))}"
    diverged = "; ".join(
        f"{shown_point(values_of(one, base))} diverged with {len(one.diverged)}" for one in settings if one.diverged
    )
    return f"{said}.{f' Of {num_seeds} seeds {diverged}.' if diverged else ''}{_lost(ledger)}"


def _lost(ledger: Ledger) -> str:
    runs = [one for one in ledger.trials if one.is_final]
    num_failed = sum(one.state == "FAILED" for one in runs)
    return f" {num_failed} of {len(runs)} trainings failed and are not in these figures." if num_failed else ""


def _comparison(
    metric: str, settings: Sequence[SettingScores], choice: Choice, num_seeds: int, confidence: float
) -> str:
    found = choice.setting
    base = next((one for one in settings if one.is_base), None)
    num_base = 0 if base is None else len(base.by_seed)
    if choice.has_base_diverged:
        assert base is not None
        return (
            f"The base diverged with {len(base.diverged)} of {num_seeds} seeds; {shown_point(found.point)} is taken, "
            f"with a mean {metric} of {_shown(found)} over {len(found.by_seed)}."
        )
    if choice.is_better:
        return (
            f"{shown_point(found.point)} is better than the base: mean {metric} {_shown(found)} against {_shown(base)} "
            f"over {num_base} seeds (p = {found.better_than_base_p:.3g} for all {len(settings) - 1} settings tested)."
        )
    if not found.is_base:
        return (
            f"The base came to no score; {shown_point(found.point)} is taken, with a mean {metric} of "
            f"{_shown(found)} over {len(found.by_seed)} seeds, held against nothing."
        )
    others = [one for one in settings if not one.is_base]
    untested = [one for one in others if one.better_than_base_p is None]
    why = _why_untested(untested, num_base, num_seeds)
    taken = f"the base is taken, with a mean {metric} of {_shown(base)}."
    if len(untested) == len(others):
        return f"No setting could be tested against the base: {why}; {taken}"
    return (
        f"No setting is better than the base by more than seed noise ({num_base} seeds, {100 * confidence:g} %): "
        f"{taken}{f' Not tested: {why}.' if untested else ''}"
    )


def _why_untested(settings: Sequence[SettingScores], num_base: int, num_seeds: int) -> str:
    """Why there is no test of these."""
    if not settings:
        return "no other was trained"
    if num_base < 2:
        return f"the base came to a score with {num_base} of {num_seeds} seeds, and a test needs two"
    return "; ".join(
        f"{shown_point(one.point)} diverged with {len(one.diverged)} of {num_seeds} seeds"
        if one.diverged
        else f"{shown_point(one.point)} came to a score with {len(one.by_seed)} of {num_seeds} seeds"
        for one in settings
    )


def _shown(setting: SettingScores | None) -> str:
    if setting is None or setting.mean is None:
        return "none"
    if setting.low is None or setting.high is None:
        return f"{setting.mean:.4g}"
    return f"{setting.mean:.4g} [{setting.low:.4g}, {setting.high:.4g}]"


def _new_flops(trials: Sequence[TrialSummary]) -> float:
    """Of the final round, without the trainings that the search had run to their ends already."""
    known = {one.folder for one in trials if not one.is_final and one.state == "COMPLETED"}
    return sum(one.flops for one in trials if one.is_final and one.folder not in known)


def _whole_flops(context: SearchContext, trial: TrialSummary) -> float:
    if trial.state != "STOPPED":  # what diverged or failed was not saved by stopping
        return trial.flops
    spec = make_trial(context, trial.point, trial.seed).spec
    return flops_until(spec, context.corpus.vocab_size, spec.training.num_train_steps)


def _reference_flops(context: SearchContext) -> float:
    if not isinstance(context.search.objective, FixedCorruptionObjective):
        return 0.0
    spec = reference_spec(context.search, context.corpus.vocab_size)
    return flops_until(spec, context.corpus.vocab_size, spec.training.num_train_steps)
