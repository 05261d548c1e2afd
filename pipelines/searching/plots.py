"""A search in three pictures, each as PNG and all of them on one page of HTML that needs no network."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.searching.figures import ScoredPoint, SearchFigures

PAGE_FILE = "search.html"
BELOW = -0.1
"""Where an axis has the trials in which its path does not count: below its values, which are between 0 and 1."""


def draw_search(figures: SearchFigures, folder: Path) -> None:
    """Write `parallel.png`, `importance.png`, `quality_vs_flops.png` and `search.html`; nothing for no scores."""
    if not figures.scored:
        return
    _draw_parallel(figures, folder / "parallel.png")
    if figures.importance:
        _draw_importance(figures, folder / "importance.png")
    _draw_quality(figures, folder / "quality_vs_flops.png")
    (folder / PAGE_FILE).write_text(_page(figures), encoding="utf-8")


class _Axis:
    """One path of the space: where its values stand between 0 and 1, and what is written there."""

    def __init__(self, path: str, scored: Sequence[ScoredPoint]) -> None:
        self.path = path
        values = [one.point[path] for one in scored if path in one.point]
        numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        self.is_number = len(numbers) == len(values) and len(set(values)) > 1
        if self.is_number:
            low, high = min(numbers), max(numbers)
            self.is_log = low > 0 and high / low > 20
            self._low, self._high = self._scaled(low), self._scaled(high)
            ticks = [low, high]
            if self.is_log:
                ticks = [low, math.sqrt(low * high), high]
            self.ticks = [(self.place(tick), f"{tick:.3g}") for tick in ticks]
        else:
            self.is_log = False
            self._words = sorted({_word(value) for value in values})
            self.ticks = [(self.place(word), word) for word in self._words]
        if len(values) < len(scored):
            self.ticks.insert(0, (BELOW, "does not count"))

    def place_of(self, one: ScoredPoint) -> float:
        """Of a trial."""
        return self.place(one.point[self.path]) if self.path in one.point else BELOW

    def place(self, value: Any) -> float:
        """Between 0 and 1."""
        if self.is_number:
            return (self._scaled(float(value)) - self._low) / (self._high - self._low)
        return self._words.index(_word(value)) / max(1, len(self._words) - 1)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.is_log else value


def _word(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)  # null is not the word "none"


def _axes_of(figures: SearchFigures) -> list[_Axis]:
    paths = list(dict.fromkeys(path for one in figures.scored for path in one.point))
    return [_Axis(path, figures.scored) for path in paths]


def _figure(width: float, height: float) -> tuple[Any, Any]:
    # Not pyplot: its global state and its choice of a window system have no place on a cluster.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _draw_parallel(figures: SearchFigures, path: Path) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axes = _axes_of(figures)
    scores = [one.score for one in figures.scored]
    norm = Normalize(min(scores), max(scores))
    colours = colormaps["viridis" if figures.mode == "max" else "viridis_r"]
    figure, axis = _figure(2.6 * (len(axes) + 1) + 1.5, 4.2)
    for one in sorted(figures.scored, key=lambda point: point.score, reverse=figures.mode == "min"):
        places = [(x, at.place_of(one)) for x, at in enumerate(axes)]
        places.append((len(axes), norm(one.score)))
        width, alpha = (2.2, 1.0) if one.is_completed else (1.0, 0.6)
        axis.plot(*zip(*places, strict=True), color=colours(norm(one.score)), lw=width, alpha=alpha)
    for x, at in enumerate(axes):
        axis.axvline(x, color="0.3", lw=1)
        for place, text in at.ticks:
            axis.annotate(text, (x, place), xytext=(4, 0), textcoords="offset points", fontsize=8, va="center")
    axis.axvline(len(axes), color="0.3", lw=1)
    axis.set_xticks(range(len(axes) + 1), [*(at.path for at in axes), figures.metric], fontsize=8)
    axis.set_yticks([])
    axis.set_title(
        f"{len(figures.scored)} trials by their score at the first rung (step {figures.rung_step} or later); "
        "thick: ran to the end",
        fontsize=9,
    )
    for side in axis.spines.values():
        side.set_visible(False)
    figure.colorbar(ScalarMappable(norm, colours), ax=axis, label=figures.metric)
    figure.savefig(path, dpi=120)


def _draw_importance(figures: SearchFigures, path: Path) -> None:
    names = list(figures.importance)[::-1]
    figure, axis = _figure(7, 1.2 + 0.4 * len(names))
    axis.barh(names, [figures.importance[name] for name in names])
    axis.set_xlim(0, 1)
    axis.set_xlabel(f"share of the variance of {figures.metric} at the first rung (fANOVA)", fontsize=9)
    axis.tick_params(labelsize=8)
    figure.savefig(path, dpi=120)


def _draw_quality(figures: SearchFigures, path: Path) -> None:
    figure, axis = _figure(7.5, 4.5)
    for number in sorted({one.number for one in figures.rungs}):
        own = [one for one in figures.rungs if one.number == number]
        axis.plot([one.flops for one in own], [one.score for one in own], color="0.7", marker=".", lw=0.8)
    axis.plot(
        [one.flops for one in figures.front],
        [one.score for one in figures.front],
        color="tab:red",
        marker="o",
        drawstyle="steps-post",
        label="best so far for its FLOPs",
    )
    for one in figures.front:
        axis.annotate(f"{one.number}", (one.flops, one.score), xytext=(4, 4), textcoords="offset points", fontsize=8)
    axis.set_xscale("log")
    axis.set_xlabel("FLOPs of training, all networks", fontsize=9)
    axis.set_ylabel(figures.metric, fontsize=9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def _page(figures: SearchFigures) -> str:
    import plotly.graph_objects as go

    scale = "Viridis" if figures.mode == "max" else "Viridis_r"
    dimensions = []
    for at in _axes_of(figures):
        ticks, texts = zip(*at.ticks, strict=True)
        values = [at.place_of(one) for one in figures.scored]
        dimensions.append({"label": at.path, "values": values, "tickvals": ticks, "ticktext": texts})
    scores = [one.score for one in figures.scored]
    dimensions.append({"label": figures.metric, "values": scores})
    parallel = go.Figure(
        go.Parcoords(line={"color": scores, "colorscale": scale, "showscale": True}, dimensions=dimensions)
    )
    parallel.update_layout(title=f"{len(scores)} trials by their score at the first rung", margin={"t": 110})
    quality = go.Figure()
    for number in sorted({one.number for one in figures.rungs}):
        own = [one for one in figures.rungs if one.number == number]
        point = next(one.point for one in figures.scored if one.number == number)
        quality.add_scatter(
            x=[one.flops for one in own],
            y=[one.score for one in own],
            mode="lines+markers",
            line={"color": "lightgrey"},
            name=f"trial {number}",
            text="<br>".join(f"{path} = {value}" for path, value in point.items()),
            showlegend=False,
        )
    quality.add_scatter(
        x=[one.flops for one in figures.front],
        y=[one.score for one in figures.front],
        mode="lines+markers",
        line={"color": "firebrick", "shape": "hv"},
        name="best so far for its FLOPs",
    )
    quality.update_layout(
        title="Quality against FLOPs",
        xaxis={"type": "log", "title": "FLOPs of training, all networks"},
        yaxis={"title": figures.metric},
    )
    drawn = [parallel, quality]
    if figures.importance:
        names = list(figures.importance)[::-1]
        bars = go.Figure(go.Bar(x=[figures.importance[name] for name in names], y=names, orientation="h"))
        bars.update_layout(title="Importance: share of the scores' variance at the first rung (fANOVA)")
        drawn.insert(1, bars)
    parts = [one.to_html(full_html=False, include_plotlyjs=index == 0) for index, one in enumerate(drawn)]
    return "<!doctype html><meta charset='utf-8'><title>Search</title>\n" + "\n".join(parts)
