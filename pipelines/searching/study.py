"""A study: every setting of a grid with every seed, as a table and a picture, the paper's numbers beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.searching.paper import CURVE, CURVE_NAMES, CURVE_SOURCE, published
from pipelines.specs.space import Point, Value
from pipelines.specs.trial_documents import RungSpread, SearchOutcome, SettingScores, TrialSummary, values_of

FEW = 6
"""Names that a picture has room for beside its curves."""
MOST_NAMED = 40
"""The best come first; with a line for each of hundreds there would be no picture."""
WIDE = 20
"""Times the least number, from which on numbers are drawn by their logarithms."""


def rung_spreads(point: Point, trials: Sequence[TrialSummary]) -> tuple[RungSpread, ...]:
    """A setting on its way to the end: mean and range over those seeds that came as far as the others."""
    own = [one for one in trials if one.is_final and one.point == dict(point) and one.state == "COMPLETED"]
    spreads = []
    for rungs in zip(*(one.rungs for one in own), strict=False):
        scores = [rung.score for rung in rungs if rung.score is not None]
        if scores:
            spread = RungSpread(
                flops=rungs[0].flops, mean=sum(scores) / len(scores), least=min(scores), most=max(scores)
            )
            spreads.append(spread)
    return tuple(spreads)


def study_table(outcome: SearchOutcome) -> list[str]:
    """Markdown: a line a setting, the best first, with the paper's number where it has one."""
    paths = list(outcome.base)
    shown = [(setting, published(values_of(setting, outcome.base))) for setting in outcome.settings]
    sources = list(dict.fromkeys(found[0] for _, found in shown if found))
    rows = [
        "| " + " | ".join([*paths, f"mean {outcome.metric}", "spread", "seeds", "FLOPs", *sources]) + " |",
        "|" + "---|" * (len(paths) + 4 + len(sources)),
    ]
    for setting, found in shown:
        values = values_of(setting, outcome.base)
        scores = list(setting.by_seed.values())
        cells = [
            *(_text(values[path]) if path in values else "" for path in paths),
            "none" if setting.mean is None else f"{setting.mean:.4g}",
            f"{min(scores):.4g} to {max(scores):.4g}" if scores else "",
            f"{len(scores)}, {len(setting.diverged)} diverged" if setting.diverged else str(len(scores)),
            f"{setting.flops:.3g}",
            *(f"{found[1]:.1f}" if found and found[0] == source else "" for source in sources),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def way_tables(outcome: SearchOutcome) -> list[str]:
    """Markdown: quality against FLOPs, of settings that were scored on their way; and the paper's, of both objectives
    that it prints a curve or its end of.
    """
    of_way = [one for one in outcome.settings if len(one.rungs) > 1]
    if not of_way:
        return []
    rows = [f"| setting | FLOPs | mean {outcome.metric} | spread |", "|---|---|---|---|"]
    rows += [
        f"| {_name(one, outcome.base)} | {at.flops:.3g} | {at.mean:.4g} | {at.least:.4g} to {at.most:.4g} |"
        for one in of_way
        for at in one.rungs
    ]
    tables = ["## On the way", "", *rows, ""]
    if CURVE_NAMES.issubset(values_of(one, outcome.base).get("objective.name") for one in of_way):
        tables += [f"| in the paper | FLOPs | {CURVE_SOURCE} |", "|---|---|---|"]
        tables += [f"| {model} | {flops:.2g} | {score:.1f} |" for model, flops, score in CURVE]
        tables += [""]
    return tables


def draw_study(outcome: SearchOutcome, path: Path) -> None:
    """A picture by what was varied: curves against FLOPs where there are rungs; where a path has numbers, lines over
    these, one for each combination of the others; else bars. Always with every seed as a dot, or all of them as a band.
    """
    study_figure(outcome).savefig(path, dpi=120)


def study_figure(outcome: SearchOutcome) -> Any:
    """The same, as a figure of matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    scored = [one for one in outcome.settings if one.mean is not None]
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    numeric = next((one for one in outcome.base if _is_numeric(one, scored, outcome.base)), None)
    if any(len(one.rungs) > 1 for one in scored):
        _draw_curves(axis, scored, outcome)
    elif numeric is not None:
        _draw_lines(axis, scored, outcome, numeric)
    else:
        _draw_bars(axis, scored, outcome)
    axis.grid(alpha=0.3)
    axis.tick_params(labelsize=8)
    drawn, names = axis.get_legend_handles_labels()
    drawn, names = drawn[:MOST_NAMED], names[:MOST_NAMED]
    if len(names) > 1:
        if len(names) <= FEW:
            axis.legend(fontsize=8)
        else:  # below the picture: on it they would hide what they name
            figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(names) / 2))
            figure.legend(drawn, names, loc="outside lower center", ncols=2, fontsize=8)
    return figure


def _draw_curves(axis: Any, scored: Sequence[SettingScores], outcome: SearchOutcome) -> None:
    for place, setting in enumerate(scored):
        flops = [one.flops for one in setting.rungs]
        means, name = [one.mean for one in setting.rungs], _name(setting, outcome.base)
        (line,) = axis.plot(flops, means, _stroke(place), marker="o", ms=3, label=name)
        axis.fill_between(
            flops,
            [one.least for one in setting.rungs],
            [one.most for one in setting.rungs],
            alpha=0.15,
            color=line.get_color(),
        )
    axis.set_xscale("log")
    axis.set_xlabel("FLOPs of training, all networks", fontsize=9)
    axis.set_ylabel(f"{outcome.metric}: mean and range over seeds", fontsize=9)


def _draw_lines(axis: Any, scored: Sequence[SettingScores], outcome: SearchOutcome, numeric: str) -> None:
    groups: dict[str, list[tuple[float, SettingScores]]] = {}
    for setting in scored:
        values = values_of(setting, outcome.base)
        others = ", ".join(f"{path} = {_text(value)}" for path, value in values.items() if path != numeric)
        value = values[numeric]
        assert isinstance(value, int | float)
        groups.setdefault(others, []).append((float(value), setting))
    for place, (name, group) in enumerate(groups.items()):
        points = sorted(group, key=lambda one: one[0])
        places, means = [x for x, _ in points], [one.mean for _, one in points]
        (line,) = axis.plot(places, means, _stroke(place), marker="o", label=name or None)
        for x, one in points:
            axis.plot([x] * len(one.by_seed), list(one.by_seed.values()), ".", color=line.get_color(), alpha=0.5)
    axis.set_xlabel(numeric, fontsize=9)
    axis.set_ylabel(f"{outcome.metric}: mean, and every seed", fontsize=9)
    numbers = [x for group in groups.values() for x, _ in group]
    if min(numbers) > 0 and max(numbers) / min(numbers) > WIDE:
        axis.set_xscale("log")


def _stroke(place: int) -> str:
    """There are ten colours: what comes after them is dashed, and so on."""
    return ("-", "--", ":", "-.")[place // 10 % 4]


def _draw_bars(axis: Any, scored: Sequence[SettingScores], outcome: SearchOutcome) -> None:
    names = [_name(one, outcome.base) for one in scored]
    axis.bar(names, [one.mean for one in scored], alpha=0.6)
    for x, one in enumerate(scored):
        axis.plot([x] * len(one.by_seed), list(one.by_seed.values()), ".", color="black")
    values = [value for one in scored for value in one.by_seed.values()]
    margin = max(values) - min(values) or abs(max(values)) * 0.05 or 1.0
    axis.set_ylim(min(values) - margin, max(values) + margin / 2)  # differences are what is looked at
    axis.set_ylabel(f"{outcome.metric}: mean, and every seed", fontsize=9)
    for label in axis.get_xticklabels():
        label.set(rotation=20, ha="right")


def _is_numeric(path: str, scored: Sequence[SettingScores], base: Mapping[str, Value]) -> bool:
    values = [values_of(one, base).get(path) for one in scored]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _name(setting: SettingScores, base: Mapping[str, Value]) -> str:
    values = values_of(setting, base)
    if len(values) == 1:
        return _text(next(iter(values.values())))
    return ", ".join(f"{path.rpartition('.')[2]} {_text(value)}" for path, value in values.items())


def _text(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
