"""GLUE's files: their layout, labels and metrics, and what its server wants back (Wang et al. 2019, arXiv:1804.07461).

Columns are found by their names, so that copies of the data with other columns are read too. CoLA alone has no header.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines import storage
from pipelines.errors import DataError
from pipelines.specs.labelled import LabelledData
from pipelines.specs.task import (
    ClassificationMetric,
    ClassificationTask,
    GlueName,
    GlueTask,
    MultipleChoiceTask,
    QuestionAnsweringTask,
    RegressionTask,
    TaskSpec,
    TokenClassificationTask,
)
from pipelines.tasks.files import SplitFiles, TaskFiles
from pipelines.tasks.tables import Row, read_rows

_COLA_COLUMNS = ("source", "label", "mark", "sentence")
_ENTAILMENT = ("entailment", "not_entailment")
DIAGNOSTIC = "diagnostic"
"""A test set of MNLI's model that is no task of its own; the server wants it too."""
_DIAGNOSTIC_FILE = "AX.tsv"
_DIAGNOSTIC_NAMES = ("diagnostic.tsv", _DIAGNOSTIC_FILE)
"""In MNLI's folder, or in one beside it: the original's script and the server's own archive put it elsewhere."""
_DIAGNOSTIC_FOLDERS = ("diagnostic", "AX")
NUM_EPOCHS: dict[GlueName, float] = {"RTE": 10.0, "STS-B": 10.0}
"""Of G, where they are not 3."""


@dataclass(frozen=True)
class _Layout:
    """A task's files."""

    text: str
    text_pair: str | None
    label: tuple[str, ...]
    """The column, by each name it goes by."""
    labels: tuple[str, ...] = ("0", "1")
    """In the order of G's outputs; none for a regression."""
    metric: ClassificationMetric = "accuracy"
    swap_pairs: bool = False
    sets: tuple[str, ...] = ("",)
    """Names of the development and test sets, where there are several."""
    submission: tuple[str, ...] = ()
    """Files the server expects, by set."""


LAYOUTS: dict[GlueName, _Layout] = {
    "CoLA": _Layout("sentence", None, ("label",), metric="matthews", submission=("CoLA.tsv",)),
    "SST-2": _Layout("sentence", None, ("label",), submission=("SST-2.tsv",)),
    "MRPC": _Layout("#1 String", "#2 String", ("Quality",), swap_pairs=True, submission=("MRPC.tsv",)),
    "STS-B": _Layout("sentence1", "sentence2", ("score",), labels=(), swap_pairs=True, submission=("STS-B.tsv",)),
    "QQP": _Layout("question1", "question2", ("is_duplicate",), submission=("QQP.tsv",)),
    "MNLI": _Layout(
        "sentence1",
        "sentence2",
        ("gold_label", "label"),
        ("contradiction", "entailment", "neutral"),
        sets=("matched", "mismatched"),
        submission=("MNLI-m.tsv", "MNLI-mm.tsv"),
    ),
    "QNLI": _Layout("question", "sentence", ("label",), _ENTAILMENT, submission=("QNLI.tsv",)),
    "RTE": _Layout("sentence1", "sentence2", ("label",), _ENTAILMENT, submission=("RTE.tsv",)),
    "WNLI": _Layout("sentence1", "sentence2", ("label",), submission=("WNLI.tsv",)),
}
STS_RANGE = (0.0, 5.0)


def reads_pairs(task: TaskSpec) -> bool:
    """Whether a task's rows hold two texts, the second of which is read as token type 1."""
    match task:
        case GlueTask():
            return LAYOUTS[task.name].text_pair is not None
        case ClassificationTask() | RegressionTask():
            return task.text_pair is not None
        case TokenClassificationTask():
            return False
        case QuestionAnsweringTask() | MultipleChoiceTask():
            return True


def missing_files(name: GlueName, uri: str) -> tuple[str, ...]:
    """Files without which a task cannot be finetuned: what is not in its folder of these."""
    train, dev = storage.join(uri, "train.tsv"), _set_files(name, uri, "dev")
    absent = [] if storage.exists(train) else ["train.tsv"]
    return (*absent, *(() if dev else ("dev.tsv",)))


def glue_task(spec: GlueTask) -> tuple[ClassificationTask | RegressionTask, TaskFiles]:
    """The task in the words of a user's own, and its files.

    Raises:
        DataError: the folder lacks the training or the development set.
        StorageError: it cannot be read.
    """
    layout = LAYOUTS[spec.name]
    absent = missing_files(spec.name, spec.uri)
    if absent:
        raise DataError(f"{spec.uri} must hold train.tsv and dev.tsv of {spec.name}, got no {' and no '.join(absent)}")
    train = storage.join(spec.uri, "train.tsv")
    names = _COLA_COLUMNS if spec.name == "CoLA" else None
    files = TaskFiles(
        SplitFiles((train,), "tsv", names),
        {key: SplitFiles((uri,), "tsv", names) for key, uri in _set_files(spec.name, spec.uri, "dev").items()},
        {
            key: SplitFiles((uri,), "tsv", has_labels=False, is_whole=True)
            for key, uri in (_set_files(spec.name, spec.uri, "test") | _diagnostic_file(spec)).items()
        },
    )
    data = LabelledData(
        format="tsv",
        train=(train,),
        validation=tuple(uri for split in files.validation.values() for uri in split.uris),
        max_train_examples=spec.max_train_examples,
    )
    shared = {
        "data": data,
        "text": layout.text,
        "text_pair": layout.text_pair,
        "label": _label_column(layout, train, names),
        "swap_pairs": layout.swap_pairs,
        "head": spec.head,
        "num_epochs": spec.num_epochs,
        "max_sequence_length": spec.max_sequence_length,
    }
    if not layout.labels:
        return RegressionTask.model_validate({**shared, "label_range": STS_RANGE}), files
    return (
        ClassificationTask.model_validate({**shared, "labels": layout.labels, "metric": layout.metric}),
        files,
    )


def submission_file(name: GlueName, test_set: str, predictions: Sequence[str | float]) -> tuple[str, str]:
    """What the server takes for a test set: the name of the file, and its lines `index` and `prediction`.

    Args:
        name: of the task.
        test_set: of `TaskFiles.test`.
        predictions: a label or a number for each row of the test set, in order. Numbers past the ends of the scale are
            written as its ends.
    """
    layout = LAYOUTS[name]
    file = layout.submission[layout.sets.index(test_set) if test_set in layout.sets else 0]
    low, high = STS_RANGE
    shown = [f"{min(max(value, low), high):.3f}" if isinstance(value, float) else value for value in predictions]
    lines = [f"{index}\t{value}" for index, value in enumerate(shown)]
    return _DIAGNOSTIC_FILE if test_set == DIAGNOSTIC else file, "\n".join(["index\tprediction", *lines]) + "\n"


def _set_files(name: GlueName, uri: str, split: str) -> dict[str, str]:
    """The files of the development or test sets, by the set's name."""
    sets = LAYOUTS[name].sets
    named = {key: storage.join(uri, f"{split}_{key}.tsv") for key in sets if key}
    found = {key: path for key, path in named.items() if storage.exists(path)}
    plain = storage.join(uri, f"{split}.tsv")
    if not found and storage.exists(plain):
        return {"": plain}
    return found


def _diagnostic_file(spec: GlueTask) -> dict[str, str]:
    """The diagnostics set, where this is the task whose model answers it and the file is there."""
    if spec.name != "MNLI":
        return {}
    uri = storage.normalise(spec.uri).rstrip("/")
    folders = [uri, *(storage.join(uri.rpartition("/")[0] or "/", folder) for folder in _DIAGNOSTIC_FOLDERS)]
    places = [storage.join(folder, name) for folder in folders for name in _DIAGNOSTIC_NAMES]
    return next(({DIAGNOSTIC: place} for place in places if storage.exists(place)), {})


def _label_column(layout: _Layout, train: str, names: tuple[str, ...] | None) -> str:
    row = next((row for row in read_rows(train, "tsv", names) if isinstance(row, Row)), None)
    has = row.values if row is not None else {}
    return next((column for column in layout.label if column in has), layout.label[0])
