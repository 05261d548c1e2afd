"""What people read of a run: curves, and one sentence with its replaced tokens marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.specs.documents import ExampleToken, ProbePoint

Curve = Sequence[tuple[int, float]]
"""(step, value), by step."""

_TITLES = {
    "generator_loss": "generator: masked-LM loss (nats)",
    "generator_accuracy": "generator: accuracy",
    "generator_reward": "generator: reward (nats)",
    "mlm_loss": "encoder: masked-LM loss (nats)",
    "mlm_accuracy": "encoder: accuracy",
    "discriminator_loss": "discriminator: RTD loss (nats)",
    "discriminator_auc": "discriminator: AUC",
    "discriminator_f1": "discriminator: F1",
    "replaced_fraction": "share of tokens replaced",
}


def plot_losses(train: Mapping[str, Curve], held_out: Mapping[str, Curve], path: Path) -> None:
    """Training curves with the held-out figures on top, one panel a figure the objective has, as PNG."""
    titles = {name: title for name, title in _TITLES.items() if train.get(name) or held_out.get(name)}
    columns = min(3, max(1, len(titles)))
    figure, axes = _figure(rows=max(1, -(-len(titles) // columns)), columns=columns)
    for axis in axes.flat[len(titles) :]:
        axis.set_axis_off()
    for axis, (name, title) in zip(axes.flat, titles.items(), strict=False):
        for curves, style, label in (
            (train, {"alpha": 0.7, "lw": 1}, "training"),
            (held_out, {"marker": "o"}, "held out"),
        ):
            if curves.get(name):
                steps, values = zip(*curves[name], strict=True)
                axis.plot(steps, values, label=label, **style)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("step", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def plot_learning_rate(learning_rate: Curve, gradient_norm: Curve, path: Path) -> None:
    """Learning rate and gradient norm over the steps, as PNG."""
    figure, axes = _figure(rows=1, columns=2)
    for axis, curve, title in zip(
        axes.flat, (learning_rate, gradient_norm), ("learning rate", "gradient norm before clipping"), strict=True
    ):
        if curve:
            axis.plot(*zip(*curve, strict=True), lw=1)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("step", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def plot_probe(points: Sequence[ProbePoint], path: Path) -> None:
    """Score against FLOPs, a panel for each task, with the range of its seeds and its baselines dashed, as PNG."""
    names = [task.task for task in points[0].tasks]
    figure, axes = _figure(rows=1, columns=len(names))
    for axis, name in zip(axes.flat, names, strict=True):
        scores = [next(task for task in point.tasks if task.task == name) for point in points]
        known = [(point.flops, task) for point, task in zip(points, scores, strict=True) if task.median is not None]
        flops = [spent for spent, _ in known]
        axis.plot(flops, [task.median for _, task in known], marker="o", label="median over seeds")
        axis.fill_between(
            flops,
            [task.spread.get("min", task.median) for _, task in known],
            [task.spread.get("max", task.median) for _, task in known],
            alpha=0.2,
        )
        for baseline, figures in scores[0].baselines.items():
            if scores[0].metric in figures:
                axis.axhline(figures[scores[0].metric], ls="--", lw=1, color="grey", label=baseline)
        axis.set_title(f"{name}: {scores[0].metric.replace('_', ' ')}", fontsize=9)
        axis.set_xlabel("training FLOPs", fontsize=8)
        axis.set_xscale("log")
        axis.tick_params(labelsize=7, which="both")
        axis.grid(alpha=0.3, which="both")
        axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def _figure(rows: int, columns: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - matplotlib's own types
    # The object interface draws without a display and without pyplot's global list of figures.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * columns, 3 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def plain_example(example: Sequence[ExampleToken]) -> str:
    """The marked sentence as text: `[replaced|original 97 %]` where a token was replaced, with P(replaced)."""
    words = []
    for token in example:
        probability = f"{100 * token.replaced_probability:.0f} %"
        if token.token != token.original:
            words.append(f"[{token.token}|{token.original} {probability}]")
        elif token.replaced_probability > 0.5:
            words.append(f"[{token.token} {probability}]")
        else:
            words.append(token.token)
    return " ".join(words)
