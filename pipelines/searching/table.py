"""A search as Markdown, for people."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.searching.study import study_table, way_tables
from pipelines.specs.space import Point, Value
from pipelines.specs.trial_documents import SearchOutcome, SettingScores, TrialSummary


def outcome_table(outcome: SearchOutcome) -> str:
    """The verdict, the final round, the best trials, and what it all cost."""
    lines = [outcome.verdict, ""]
    if outcome.is_study:
        lines += ["## Settings", "", *study_table(outcome), "", *way_tables(outcome)]
    elif outcome.settings:
        lines += ["## Final round", "", *_settings(outcome.settings, outcome.metric), ""]
    if outcome.leaderboard:
        lines += ["## Best trials", "", *_trials(outcome.leaderboard, outcome.metric), ""]
    if outcome.loss_agreement:
        lines += ["## What losses would have chosen", "", *_agreement(outcome), ""]
    lines += ["## Cost", "", _study_cost(outcome) if outcome.is_study else _search_cost(outcome)]
    return "\n".join(lines) + "\n"


def _study_cost(outcome: SearchOutcome) -> str:
    """Of its settings alone: a study tries nothing before, and stops nothing."""
    reference = f", the reference generator {outcome.flops_reference:.3g}" if outcome.flops_reference else ""
    num_invalid = outcome.num_by_state.get("INVALID", 0)
    left_out = f"; {num_invalid} combinations are no specs" if num_invalid else ""
    return f"{len(outcome.settings)} settings took {outcome.flops_final:.3g} FLOPs of training{reference}{left_out}."


def _search_cost(outcome: SearchOutcome) -> str:
    states = ", ".join(f"{number} {state.lower()}" for state, number in sorted(outcome.num_by_state.items()))
    saved = 1 - outcome.flops_trials / outcome.flops_without_stopping if outcome.flops_without_stopping else 0.0
    reference = f", the reference generator {outcome.flops_reference:.3g}" if outcome.flops_reference else ""
    return (
        f"{outcome.num_trials} trials ({states}) took {outcome.flops_trials:.3g} FLOPs of training, "
        f"{100 * saved:.0f} % less than the {outcome.flops_without_stopping:.3g} they would have taken to their ends; "
        f"the final round {outcome.flops_final:.3g} more{reference}."
    )


def _settings(settings: Sequence[SettingScores], metric: str) -> list[str]:
    paths = _paths([one.point for one in settings])
    rows = [
        "| | " + "".join(f"{path} | " for path in paths) + f"mean {metric} | interval | seeds | p against the base |",
        "|---|" + "---|" * (len(paths) + 4),
    ]
    for one in settings:
        interval = "" if one.low is None or one.high is None else f"{one.low:.4g} to {one.high:.4g}"
        cells = [
            "base" if one.is_base else "",
            *(_cell(one.point, path) for path in paths),
            "none" if one.mean is None else f"{one.mean:.4g}",
            interval,
            str(len(one.by_seed)),
            "" if one.better_than_base_p is None else f"{one.better_than_base_p:.3g}",
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _trials(trials: Sequence[TrialSummary], metric: str) -> list[str]:
    paths = _paths([one.point for one in trials])
    rows = [
        "| trial | state | " + "".join(f"{path} | " for path in paths) + f"{metric} | step | FLOPs |",
        "|---|---|" + "---|" * (len(paths) + 3),
    ]
    for one in trials:
        cells = [
            str(one.number),
            one.state.lower(),
            *(_cell(one.point, path) for path in paths),
            "none" if one.score is None else f"{one.score:.4g}",
            f"{one.step} of {one.num_train_steps}",
            f"{one.flops:.3g}",
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _agreement(outcome: SearchOutcome) -> list[str]:
    """A line for each loss of training. Spearman's correlation is 1 where less loss always is a better score."""
    head = [
        "least at the first rung",
        f"rank correlation with {outcome.metric}",
        "trial",
        "its score there",
        "its place",
    ]
    rows = [f"| {' | '.join(head)} |", "|---|---|---|---|---|"]
    for one in outcome.loss_agreement:
        correlation = "none" if one.rank_correlation is None else f"{one.rank_correlation:.2f}"
        score = "none" if one.chosen_score is None else f"{one.chosen_score:.4g}"
        place = f"{one.chosen_place} of {one.num_trials}"
        rows.append(f"| {one.loss.replace('_', ' ')} | {correlation} | {one.chosen} | {score} | {place} |")
    return rows


def _paths(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(path for point in points for path in point))


def _cell(point: Point, path: str) -> str:
    if path not in point:
        return ""
    value: Value = point[path]
    return f"{value:.4g}" if isinstance(value, float) else str(value)
