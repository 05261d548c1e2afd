"""From finished runs to what is reported: medians and spread over seeds, the best seed, a table with the mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.finetuning.seed_task import SeedResult
from pipelines.specs.documents import TaskScores
from pipelines.tasks.prepare import TEST, VALIDATION, PreparedTask
from pipelines.tasks.scores import is_better, main_metric, medians, positive_label, summary

MAX_REPORT_LINES = 20


@dataclass(frozen=True)
class TaskSummary:
    """A task with all its seeds."""

    prepared: PreparedTask
    scores: TaskScores
    best: SeedResult
    num_seeds: int
    notes: tuple[str, ...]
    """What must be known to read the scores, a sentence each."""


def summarise(prepared: PreparedTask, results: Sequence[SeedResult]) -> TaskSummary:
    """Medians over seeds; the best seed is that of the best score on the first validation split. A seed without a score
    counts as the worst.
    """
    metric = main_metric(prepared.task)
    first = prepared.splits_of(VALIDATION)[0].name
    best = results[0]
    for result in results[1:]:
        if is_better(metric, result.scores[first][metric], best.scores[first][metric]):
            best = result
    values = [result.scores[first][metric] for result in results]
    spread = summary(values, metric)
    positive = positive_label(prepared.task, prepared.labels)
    of_f1 = () if positive is None else (f"f1 is that of the label {positive!r}",)
    undefined = _undefined(results, values, metric)
    notes = (*prepared.notes, *(of_f1 if metric == "f1" else ()), *undefined)
    others = [split.name for split in (*prepared.splits_of(VALIDATION)[1:], *prepared.splits_of(TEST))]
    scores = TaskScores(
        task=prepared.name,
        metric=metric,
        median=_finite(spread["median"]),
        spread=_all_finite(spread),
        by_seed={
            str(result.seed): value for result, value in zip(results, values, strict=True) if math.isfinite(value)
        },
        best_seed=best.seed,
        figures=_all_finite(medians([result.scores[first] for result in results])),
        other_splits={
            name: _all_finite(medians([result.scores[name] for result in results]))
            for name in others
            if all(name in result.scores for result in results)
        },
        baselines={name: _all_finite(figures) for name, figures in prepared.baselines.items()},
        num_train_examples=prepared.splits[0].num_examples,
        num_validation_examples=prepared.splits_of(VALIDATION)[0].num_examples,
        num_also_in_training=prepared.splits_of(VALIDATION)[0].num_also_in_training,
        num_bad_rows=sum(split.num_bad_rows for split in prepared.splits),
        # F1 is among the figures, whatever seeds are compared by.
        report=_report((*prepared.notes, *of_f1, *undefined), [split.report for split in prepared.splits]),
        examples_per_second=statistics.median(result.examples_per_second for result in results),
    )
    return TaskSummary(prepared, scores, best, len(results), notes)


def _report(notes: Sequence[str], splits: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The notes, then as many lines of one split as of another while it has some: none crowds the others out."""
    room = max(0, MAX_REPORT_LINES - len(notes))
    places = sorted((place, number) for number, lines in enumerate(splits) for place in range(len(lines)))[:room]
    kept = sorted((number, place) for place, number in places)
    return (*notes[:MAX_REPORT_LINES], *(splits[number][place] for number, place in kept))


def _undefined(results: Sequence[SeedResult], values: Sequence[float], metric: str) -> tuple[str, ...]:
    seeds = [str(result.seed) for result, value in zip(results, values, strict=True) if math.isnan(value)]
    if not seeds:
        return ()
    name = metric.replace("_", " ")
    why = "their answers or the labels are all alike"
    return (f"seeds without a {name}, since {why}, which count as the worst: {', '.join(seeds)}",)


def headline(summaries: Sequence[TaskSummary]) -> dict[str, float]:
    """The figures of the whole job: a task's own, or each task's main figure and their mean."""
    if len(summaries) == 1:
        return dict(summaries[0].scores.figures)
    named = {
        f"{one.scores.task}/{one.scores.metric}": one.scores.median
        for one in summaries
        if one.scores.median is not None
    }
    return named | {"mean": mean_score(summaries)}


def mean_score(summaries: Sequence[TaskSummary]) -> float:
    """Mean of the tasks' main figures, in percent; one that is undefined counts as 0."""
    return sum(_percent(one.scores) for one in summaries) / len(summaries)


def table(summaries: Sequence[TaskSummary], left_out: Mapping[str, str]) -> str:
    """All tasks as Markdown: median, spread and baselines, then what must be known of them, and what was left out."""
    names = sorted({name for one in summaries for name in one.scores.baselines})
    rows = [
        "| task | metric | median | std | seeds | " + "".join(f"{name} | " for name in names).rstrip(),
        "|---|---|---|---|---|" + "---|" * len(names),
    ]
    for one in summaries:
        scores = one.scores
        cells = [
            scores.task,
            scores.metric.replace("_", " "),
            _shown(scores.median),
            _shown(scores.spread.get("std")),
            str(one.num_seeds),
            *(_shown(scores.baselines.get(name, {}).get(scores.metric)) for name in names),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    if len(summaries) > 1:
        rows.append(f"| **mean** | percent | {mean_score(summaries):.1f} | | | " + "| " * len(names))
    rows += ["", *(f"- {one.scores.task}, {note}." for one in summaries for note in one.notes)]
    rows += ["", *(f"Left out: {name}, {reason}." for name, reason in left_out.items())]
    return "\n".join(rows).rstrip() + "\n"


def _percent(scores: TaskScores) -> float:
    if scores.median is None:
        return 0.0
    return scores.median if scores.metric in ("f1", "exact_match") and _is_question(scores) else 100 * scores.median


def _is_question(scores: TaskScores) -> bool:
    return "exact_match" in scores.figures


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _all_finite(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if math.isfinite(value)}
