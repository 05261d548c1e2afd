"""From runs to what is reported: seeds without a score, what was not all of a split, the card."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from finished_runs import prepared_task, result_of, run_of, split

from pipelines.finetuning.card import finetuned_card
from pipelines.finetuning.export_task import ExportTask
from pipelines.finetuning.seed_task import SeedResult
from pipelines.finetuning.summarise import TaskSummary, mean_score, summarise, table
from pipelines.specs.task import ClassificationTask, RegressionTask
from pipelines.tasks.scores import medians, summary

NAN = math.nan
DATA = {"train": "train.csv"}
NUMBERS = RegressionTask.model_validate({"data": DATA, "metric": "pearson"})
CLASSES = ClassificationTask.model_validate({"data": DATA})


@pytest.mark.parametrize(
    ("values", "median", "mean"),
    [
        ([NAN, 0.75, 0.5], 0.5, 1.25 / 3),
        ([0.5, NAN], 0.25, 0.25),
        ([NAN, NAN, 0.5], 0.0, 0.5 / 3),
        ([NAN, -0.5, 0.5], -0.5, -0.5 / 3),
    ],
)
def test_a_seed_without_a_score_is_the_worst(values: list[float], median: float, mean: float) -> None:
    found = summary(values, "pearson")
    assert (found["median"], found["mean"]) == (pytest.approx(median), pytest.approx(mean))
    assert medians([{"pearson": value} for value in values]) == {"pearson": pytest.approx(median)}


def test_where_less_is_better_the_worst_is_the_largest() -> None:
    assert summary([NAN, 2.0, 4.0, 8.0], "mean_squared_error")["median"] == 6.0


def test_what_no_seed_has_is_undefined() -> None:
    assert math.isnan(summary([NAN, NAN], "pearson")["median"])


def summarised(*values: float) -> TaskSummary:
    prepared = prepared_task(NUMBERS)
    figures = [{"validation": {"pearson": value}} for value in values]
    return summarise(prepared, [result_of(seed, one) for seed, one in enumerate(figures, start=1)])


def test_one_seed_without_a_score_leaves_the_task_in_the_mean() -> None:
    """And the report says which it is."""
    one = summarised(0.5, NAN, 0.75)
    assert (one.scores.median, one.scores.best_seed, one.scores.by_seed) == (0.5, 3, {"1": 0.5, "3": 0.75})
    assert mean_score([one]) == 50.0
    note = "seeds without a pearson, since their answers or the labels are all alike, which count as the worst: 2"
    assert one.scores.report == (note,)
    text = table([one], {})
    assert f"- toy, {note}." in text
    assert "| toy | pearson | 0.5 | 0.3819 | 3 |" in text
    assert summarised(NAN, NAN).scores.median is None


def counted() -> TaskSummary:
    """Some of each split was left out."""
    prepared = prepared_task(
        CLASSES,
        split("train", 1000, num_bad_rows=2, num_without_window=4, report=("train.csv:5: broken",)),
        split("validation", 100, num_cut=30),
        split("test", 100, num_labelled=99),
        labels=("a", "b"),
        baselines={"majority": {"accuracy": 0.25}},
        baseline_notes=("the baseline tfidf is left out: no words",),
    )
    scores = {"validation": {"accuracy": 0.5}, "test": {"accuracy": 0.375}}
    return summarise(prepared, [result_of(1, scores)])


def export_of(one: TaskSummary, result: SeedResult, **training: Any) -> ExportTask:
    """That result's, of a task with two seeds."""
    return ExportTask(
        run_of(one.prepared, seeds=[1, 2], **training), one.scores, result, "ft-1", "toy", None, "nowhere"
    )


NOTES = (
    "train: questions left out, since their answers fit into no window of max_sequence_length: 4",
    "validation: examples that are longer than what is read of them: 30 of 100",
    "test: examples that have a label, and that scores are of: 99 of 100",
    "the baseline tfidf is left out: no words",
)
POSITIVE = "f1 is that of the label 'b'"


def test_what_is_not_all_of_a_split_stands_in_the_report() -> None:
    one = counted()
    assert one.scores.report == (*NOTES, POSITIVE, "train.csv:5: broken")
    assert all(f"- toy, {note}." in table([one], {}) for note in NOTES)


@pytest.mark.parametrize(
    ("metric", "labels", "is_in_table", "is_in_report"),
    [
        ("f1", ("a", "b"), True, True),
        ("accuracy", ("a", "b"), False, True),
        ("accuracy", ("a", "b", "c"), False, False),
    ],
)
def test_the_label_that_f1_is_of_is_named(
    metric: str, labels: tuple[str, ...], is_in_table: bool, is_in_report: bool
) -> None:
    """Where tasks stand in a table, only if it is their figure that stands there."""
    task = ClassificationTask.model_validate({"data": DATA, "metric": metric})
    one = summarise(prepared_task(task, labels=labels), [result_of(1, {"validation": {"accuracy": 0.5, "f1": 0.5}})])
    assert (POSITIVE in table([one], {}), POSITIVE in one.scores.report) == (is_in_table, is_in_report)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [((20, 20, 20), (7, 7, 6)), ((20, 1, 0), (19, 1, 0)), ((3, 20, 20), (3, 9, 8)), ((1, 0, 2), (1, 0, 2))],
)
def test_no_split_crowds_the_others_out_of_the_report(numbers: tuple[int, ...], expected: tuple[int, ...]) -> None:
    names = ("train", "validation", "test")
    splits = [
        split(name, report=tuple(f"{name}.csv:{line}" for line in range(number)))
        for name, number in zip(names, numbers, strict=True)
    ]
    one = summarise(prepared_task(NUMBERS, *splits), [result_of(1, {"validation": {"pearson": 0.5}})])
    assert one.scores.report == tuple(
        f"{name}.csv:{line}" for name, number in zip(names, expected, strict=True) for line in range(number)
    )


def test_a_card_tells_test_scores_and_what_was_left_out() -> None:
    one = counted()
    card = finetuned_card(export_of(one, one.best), "ElectraForSequenceClassification")
    assert "| figure | median | majority | median on test |" in card
    assert "| accuracy | 0.5 | 0.25 | 0.375 |" in card
    assert "| train | 1,000 | 2 | 0 |\n| validation | 100 | 0 | 30 |\n| test | 100 | 0 | 0 |" in card
    assert all(f"\n- {note}." in card for note in NOTES)
    assert "\n`f1` is that of the label `b`.\n" in card
    assert "accuracy: 1: 0.5, 2: –;" in card
    assert "Started from: tiny version 7." in card


@pytest.mark.parametrize(("computed_in", "told"), [("bf16", ", bf16."), ("fp32", ", fp32."), (None, ".")])
def test_a_card_names_the_precision_that_was_computed_in(computed_in: str | None, told: str) -> None:
    """And not "auto"; runs that ended before it was kept say nothing."""
    one = counted()
    export = export_of(one, replace(one.best, precision=computed_in), precision="auto")
    card = finetuned_card(export, "ElectraForSequenceClassification")
    assert f"tokens an example{told}\n" in card


@pytest.mark.parametrize(
    ("without_pretraining", "given", "expected"), [(False, None, 0.8), (True, None, 1.0), (True, 0.9, 0.9)]
)
def test_random_weights_learn_as_fast_below_as_above(
    without_pretraining: bool, given: float | None, expected: float
) -> None:
    run = run_of(prepared_task(CLASSES), without_pretraining=without_pretraining, layerwise_decay=given)
    assert run.optimizer(10).layerwise_decay == expected
