"""The tables a search is shown by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from pipelines.specs.trial_documents import SearchOutcome, SettingScores, TrialSummary, values_of
from service.cli.render import printable

_STYLES = {"RUNNING": "cyan", "COMPLETED": "green", "FAILED": "red", "DIVERGED": "red", "INVALID": "yellow"}


def trials_table(trials: Sequence[TrialSummary], metric: str) -> Table:
    """One line a trial, with the value of each path."""
    paths = _paths(trials)
    table = Table(title="Trials", title_justify="left")
    for column in ("trial", "state"):
        table.add_column(column, no_wrap=True)
    for path in paths:
        table.add_column(Text(path), justify="right", overflow="fold")
    for column in (metric, "step", "FLOPs"):
        table.add_column(Text(column), justify="right")
    for one in trials:
        table.add_row(
            f"{one.number}{' final' if one.is_final else ''}",
            Text(one.state.lower(), style=_STYLES.get(one.state, "")),
            *(value_text(one.point[path]) if path in one.point else Text() for path in paths),
            "" if one.score is None else f"{one.score:.4g}",
            f"{one.step:,}/{one.num_train_steps:,}" if one.num_train_steps else "",
            f"{one.flops:.3g}" if one.flops else "",
        )
    return table


def search_tables(outcome: SearchOutcome) -> Iterator[Table]:
    """What a finished search found: the final round, then the best trials; of a study its settings, which are all."""
    if outcome.is_study:
        yield _study_table(outcome)
        return
    if outcome.settings:
        yield _settings_table(outcome.settings, outcome.metric)
    yield trials_table(outcome.leaderboard, outcome.metric)


def value_text(value: object) -> Text:
    """Of a path; as text, for a word of a spec may look like mark-up, or hold what would change the terminal."""
    return Text(f"{value:.4g}" if isinstance(value, float) else printable(str(value)))


def _settings_table(settings: Sequence[SettingScores], metric: str) -> Table:
    paths = list(dict.fromkeys(path for one in settings for path in one.point))
    table = Table(title="Final round: means over seeds", title_justify="left")
    table.add_column("setting")
    for path in paths:
        table.add_column(Text(path), justify="right", overflow="fold")
    for column in (f"mean {metric}", "interval", "seeds", "p against the base"):
        table.add_column(column, justify="right")
    for one in settings:
        interval = "" if one.low is None or one.high is None else f"{one.low:.4g} to {one.high:.4g}"
        table.add_row(
            "base" if one.is_base else "",
            *(value_text(one.point[path]) if path in one.point else Text() for path in paths),
            "" if one.mean is None else f"{one.mean:.4g}",
            interval,
            str(len(one.by_seed)),
            "" if one.better_than_base_p is None else f"{one.better_than_base_p:.3g}",
        )
    return table


def _study_table(outcome: SearchOutcome) -> Table:
    shown = [(one, values_of(one, outcome.base)) for one in outcome.settings]
    paths = list(dict.fromkeys([*outcome.base, *(path for _, values in shown for path in values)]))
    table = Table(title="Study: means over seeds", title_justify="left")
    table.add_column("setting")
    for path in paths:
        table.add_column(Text(path), justify="right", overflow="fold")
    for column in (f"mean {outcome.metric}", "spread", "seeds", "FLOPs"):
        table.add_column(column, justify="right")
    for one, values in shown:
        scores = one.by_seed.values()
        table.add_row(
            "base" if one.is_base else "",
            *(value_text(values[path]) if path in values else Text() for path in paths),
            "" if one.mean is None else f"{one.mean:.4g}",
            f"{min(scores):.4g} to {max(scores):.4g}" if scores else "",
            f"{len(scores)}, {len(one.diverged)} diverged" if one.diverged else str(len(scores)),
            f"{one.flops:.3g}" if one.flops else "",
        )
    return table


def _paths(trials: Sequence[TrialSummary]) -> list[str]:
    return list(dict.fromkeys(path for one in trials for path in one.point))
