"""Scores of predictions, by scikit-learn, scipy and seqeval; all from 0 to 1 but SQuAD's, which are in percent."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn import metrics

from pipelines.specs.task import (
    SMALLER_IS_BETTER,
    ClassificationTask,
    MultipleChoiceTask,
    QuestionAnsweringTask,
    RegressionTask,
    TokenClassificationTask,
    UserTask,
)


def main_metric(task: UserTask) -> str:
    """What seeds are compared by."""
    match task:
        case TokenClassificationTask():
            return task.main_metric
        case MultipleChoiceTask():
            return "accuracy"
        case ClassificationTask() | RegressionTask() | QuestionAnsweringTask():
            return task.metric


def is_better(metric: str, value: float, other: float) -> bool:
    """Whether `value` is the better one; NaN never is."""
    if math.isnan(value) or math.isnan(other):
        return not math.isnan(value)
    return value < other if metric in SMALLER_IS_BETTER else value > other


def positive_label(task: UserTask, labels: Sequence[str]) -> str | None:
    """The label that a classification's F1 is of: the second of two; None where a task has no such figure."""
    return labels[1] if isinstance(task, ClassificationTask) and len(labels) == 2 else None


def classification_scores(
    predicted: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], num_labels: int
) -> dict[str, float]:
    """Accuracy, macro F1 and Matthews' correlation; F1 of the second label where there are two."""
    scores = {
        "accuracy": float(metrics.accuracy_score(labels, predicted)),
        "macro_f1": float(metrics.f1_score(labels, predicted, average="macro", zero_division=0)),
        "matthews": _matthews(labels, predicted),
    }
    if num_labels == 2:
        scores["f1"] = float(metrics.f1_score(labels, predicted, pos_label=1, zero_division=0))
    return scores


def _matthews(labels: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one label alone; the value, 0, says it
        return float(metrics.matthews_corrcoef(labels, predicted))


def regression_scores(predicted: npt.NDArray[np.float32], labels: npt.NDArray[np.float32]) -> dict[str, float]:
    """Pearson's and Spearman's correlation, their mean, and the mean squared error; NaN where nothing varies."""
    if len(labels) < 2:
        nan = float("nan")
        error = float(metrics.mean_squared_error(labels, predicted))
        return {"pearson": nan, "spearman": nan, "pearson_spearman": nan, "mean_squared_error": error}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a constant; the value, NaN, says it
        pearson = float(stats.pearsonr(predicted.astype(np.float64), labels.astype(np.float64)).statistic)
        spearman = float(stats.spearmanr(predicted, labels).statistic)
    return {
        "pearson": pearson,
        "spearman": spearman,
        "pearson_spearman": (pearson + spearman) / 2,
        "mean_squared_error": float(metrics.mean_squared_error(labels, predicted)),
    }


def tag_scores(predicted: Sequence[Sequence[str]], labels: Sequence[Sequence[str]], scheme: str) -> dict[str, float]:
    """Accuracy over words; where labels mark spans, precision, recall and F1 of whole spans too.

    Spans are read as conlleval reads them, the script that published figures come from: `I-PER` after `O` begins one.
    """
    flat_predicted = [tag for tags in predicted for tag in tags]
    flat = [tag for tags in labels for tag in tags]
    scores = {"accuracy": float(metrics.accuracy_score(flat, flat_predicted))}
    if scheme != "none":
        from seqeval import metrics as spans

        lists = [list(tags) for tags in labels], [list(tags) for tags in predicted]
        scores["span_precision"] = float(spans.precision_score(*lists, zero_division=0))
        scores["span_recall"] = float(spans.recall_score(*lists, zero_division=0))
        scores["span_f1"] = float(spans.f1_score(*lists, zero_division=0))
    else:
        # "" stands for a word that was never looked at: wrong, and no label of its own.
        known = sorted({*flat, *flat_predicted} - {""})
        scores["macro_f1"] = float(
            metrics.f1_score(flat, flat_predicted, labels=known, average="macro", zero_division=0)
        )
    return scores


def summary(values: Sequence[float], metric: str) -> dict[str, float]:
    """Median, mean, smallest, largest and standard deviation (of a sample; 0 of one value) of a figure over several
    seeds; NaN where no seed has a value.
    """
    array = _with_worst(values, metric)
    return {
        "median": float(np.median(array)),
        "mean": float(array.mean()),
        "min": float(array.min()),
        "max": float(array.max()),
        "std": float(array.std(ddof=1)) if len(array) > 1 else 0.0,
    }


def medians(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each figure over several seeds."""
    return {name: float(np.median(_with_worst([one[name] for one in scores], name))) for name in scores[0]}


def _with_worst(values: Sequence[float], metric: str) -> npt.NDArray[np.float64]:
    """A seed that has no value, since its answers are all alike, is worse than every other: it found nothing, which
    is 0, or less where another has less.
    """
    array = np.array(values, np.float64)
    known = array[~np.isnan(array)]
    if not len(known):
        return array
    worst = known.max() if metric in SMALLER_IS_BETTER else min(0.0, known.min())
    return np.where(np.isnan(array), worst, array)
