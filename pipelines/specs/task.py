"""What an encoder is finetuned to do: labelled files, which columns mean what, and how the answers are scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from electra_core.config import FrozenModel, HeadStyle, TaskKind
from pipelines.specs.initialization import WeightsUri
from pipelines.specs.labelled import Column, LabelledData, format_of
from pipelines.specs.record import Name

Label = Annotated[str, Field(max_length=500)]
ClassificationMetric = Literal["accuracy", "f1", "macro_f1", "matthews"]
RegressionMetric = Literal["pearson", "spearman", "pearson_spearman", "mean_squared_error"]
GlueName = Literal["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI"]
SMALLER_IS_BETTER = frozenset({"mean_squared_error"})
"""Metrics of which less is better."""
DEFAULT_STRIDE = 128

_TABLES = ("csv", "tsv", "jsonl", "parquet", "datasets")


class _Task(FrozenModel):
    kind: ClassVar[TaskKind]
    formats: ClassVar[tuple[str, ...]] = _TABLES

    data: LabelledData
    num_epochs: Annotated[float, Field(gt=0, le=10_000)] | None = None
    """In place of `training.num_epochs`; must be absent beside `training.num_train_steps`."""
    max_sequence_length: Annotated[int, Field(ge=8, le=65_536)] | None = None
    """In place of `training.max_sequence_length`."""

    @model_validator(mode="after")
    def _format_fits(self) -> Self:
        if self.data.format is not None and self.data.format not in self.formats:
            raise ValueError(
                f"data.format must be one of {', '.join(self.formats)} for this type of task, got {self.data.format!r}"
            )
        for split in (self.data.train, self.data.validation or (), self.data.test or ()):
            kinds = {self.data.format or format_of(uri) for uri in split}
            for uri in split:
                if (self.data.format or format_of(uri)) not in self.formats:
                    raise ValueError(
                        f"data must be {', '.join(self.formats)} for this type of task, "
                        f"got {format_of(uri)!r} of {uri!r}"
                    )
            if len(kinds) > 1:
                raise ValueError(
                    f"the files of a split must be of one format, got {', '.join(sorted(map(str, kinds)))}"
                )
        return self


def _labels_differ(labels: tuple[str, ...] | None) -> None:
    if labels is not None and (len(set(labels)) != len(labels) or len(labels) < 2):
        raise ValueError(f"labels must be at least two and all different, got {', '.join(map(repr, labels))}")


class ClassificationTask(_Task):
    """One label for a text or a pair of texts."""

    kind = "classification"

    type: Literal["classification"] = "classification"
    text: Column = "text"
    text_pair: Column | None = None
    """Second text, which is read as token type 1."""
    label: Column = "label"
    labels: tuple[Label, ...] | None = None
    """All labels, in the order of the model's outputs; those of the training files, sorted, when absent."""
    metric: ClassificationMetric = "accuracy"
    """What seeds are compared by. `f1` is that of the second of two labels."""
    head: HeadStyle = "transformers"
    """`transformers` has a dense layer more than `original`, G's. Both export without loss."""
    class_weights: Literal["balanced"] | dict[Label, Annotated[float, Field(gt=0, le=1e6)]] | None = None
    """Weights of the labels in the loss: by name (1 where none is named), or `balanced`: inverse to how frequent each
    is."""
    swap_pairs: bool = False
    """Train on each pair in both orders, as G does for MRPC and STS-B, whose texts have no order."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        _labels_differ(self.labels)
        if self.swap_pairs and self.text_pair is None:
            raise ValueError("swap_pairs must be false where text_pair is absent, got true")
        if self.metric == "f1" and self.labels is not None and len(self.labels) != 2:
            raise ValueError(f"metric must be macro_f1 where there are not two labels, got 'f1' and {len(self.labels)}")
        if isinstance(self.class_weights, dict) and self.labels is not None:
            unknown = sorted(self.class_weights.keys() - set(self.labels))
            if unknown:
                raise ValueError(f"class_weights must name labels of the task, got {', '.join(map(repr, unknown))}")
        return self


class RegressionTask(_Task):
    """One number for a text or a pair of texts."""

    kind = "regression"

    type: Literal["regression"] = "regression"
    text: Column = "text"
    text_pair: Column | None = None
    """Second text, which is read as token type 1."""
    label: Column = "label"
    label_range: tuple[float, float] = (0.0, 1.0)
    """Smallest and largest label: they become 0 and 1 while training, and the exported model answers in this range."""
    metric: RegressionMetric = "pearson_spearman"
    """What seeds are compared by; `pearson_spearman` is the mean of the two correlations. `mean_squared_error` is for a
    single task: of several the scores are averaged, and of this less is better."""
    head: HeadStyle = "transformers"
    """As of a classification."""
    swap_pairs: bool = False
    """As of a classification."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.label_range[0] >= self.label_range[1]:
            raise ValueError(f"label_range must increase, got {self.label_range[0]:g} and {self.label_range[1]:g}")
        if self.swap_pairs and self.text_pair is None:
            raise ValueError("swap_pairs must be false where text_pair is absent, got true")
        return self


class TokenClassificationTask(_Task):
    """One label for each word; the first piece of a word carries it."""

    kind = "token_classification"
    formats = (*_TABLES[2:], "conllu", "conll")

    type: Literal["token_classification"] = "token_classification"
    tokens: Column = "tokens"
    """Column with the list of words; in CoNLL the number of the column, `1` when left as it is; CoNLL-U's is FORM."""
    tags: Column = "tags"
    """Column with the list of labels, texts or whole numbers; in CoNLL the number of the column, the last when left as
    it is; in CoNLL-U a name such as `upos` or `xpos`, `upos` when left as it is."""
    labels: tuple[Label, ...] | None = None
    """All labels, in the order of the model's outputs; those of the training files, sorted, when absent."""
    scheme: Literal["none", "BIO", "BIOES"] = "none"
    """How labels mark spans, as `B-PER` does; `none` where each word stands for itself."""
    metric: Literal["accuracy", "span_f1"] | None = None
    """What seeds are compared by: span F1 where labels mark spans, else accuracy, when absent."""
    class_weights: Literal["balanced"] | dict[Label, Annotated[float, Field(gt=0, le=1e6)]] | None = None
    """As of a classification."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        _labels_differ(self.labels)
        if self.metric == "span_f1" and self.scheme == "none":
            raise ValueError("metric must be accuracy where scheme is none, got 'span_f1'")
        return self

    @property
    def main_metric(self) -> Literal["accuracy", "span_f1"]:
        """The metric that is meant."""
        return self.metric or ("accuracy" if self.scheme == "none" else "span_f1")


class QuestionAnsweringTask(_Task):
    """The span of a text that answers a question, if any does."""

    kind = "question_answering"
    formats = ("squad", *_TABLES[2:])

    type: Literal["question_answering"] = "question_answering"
    question: Column = "question"
    context: Column = "context"
    answers: Column = "answers"
    """In a table: an object of lists `text` and `answer_start` (in characters), or a list of objects of the two. In
    SQuAD's own JSON the names are fixed."""
    identifier: Column = "id"
    metric: Literal["f1", "exact_match"] = "f1"
    """What seeds are compared by, in percent, after the rules of the SQuAD scripts."""
    max_query_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    """Longer questions are cut."""
    document_stride: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Tokens from the start of one window of a long text to that of the next; when absent 128, or half of the text's
    tokens in a window where that is less: windows that do not overlap lose the answers across their borders. G has 128
    in rows of 512 (`max_sequence_length`)."""
    max_answer_tokens: Annotated[int, Field(ge=1, le=4096)] = 30
    num_best: Annotated[int, Field(ge=1, le=1000)] = 20
    """Starts and ends that are paired, and answers that are kept for each question."""

    def stride(self, room: int) -> int:
        """Tokens from one window to the next, where `room` of the text's tokens fit into one. None is passed over."""
        if self.document_stride is None:
            return max(1, min(DEFAULT_STRIDE, room // 2))
        return min(room, self.document_stride)


class MultipleChoiceTask(_Task):
    """One of several texts that goes with a text."""

    kind = "multiple_choice"

    type: Literal["multiple_choice"] = "multiple_choice"
    text: Column = "text"
    """What the choices are held against."""
    choices: Annotated[tuple[Column, ...], Field(min_length=1, max_length=100)] = ("choices",)
    """The column with the list of choices, or a column for each of them."""
    label: Column = "label"
    """Which choice is right: its number from 0, its letter from A, or its text."""


class GlueTask(FrozenModel):
    """A task of GLUE in the layout of its files, with its metric and the original's epochs."""

    type: Literal["glue"] = "glue"
    name: GlueName
    uri: WeightsUri
    """The task's folder. With MNLI the diagnostics set is predicted too, where it lies there or in `diagnostic` or `AX`
    beside it."""
    head: HeadStyle = "transformers"
    """As of a classification."""
    num_epochs: Annotated[float, Field(gt=0, le=10_000)] | None = None
    """In place of `training.num_epochs`; must be absent beside `training.num_train_steps`."""
    max_sequence_length: Annotated[int, Field(ge=8, le=65_536)] | None = None
    """In place of `training.max_sequence_length`."""
    max_train_examples: Annotated[int, Field(ge=1)] | None = None
    """As of other data."""


UserTask = Annotated[
    ClassificationTask | RegressionTask | TokenClassificationTask | QuestionAnsweringTask | MultipleChoiceTask,
    Field(discriminator="type"),
]
"""A task with its columns."""
TaskSpec = Annotated[
    ClassificationTask
    | RegressionTask
    | TokenClassificationTask
    | QuestionAnsweringTask
    | MultipleChoiceTask
    | GlueTask,
    Field(discriminator="type"),
]
"""A task as a spec may name it."""


class GlueSuite(FrozenModel):
    """The tasks of GLUE whose files are there."""

    type: Literal["glue"] = "glue"
    uri: WeightsUri
    """Folder with a folder for each task, named as in `tasks`."""
    tasks: tuple[GlueName, ...] = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI")
    """Those whose files are there count in the mean, WNLI too, which published means often leave out."""
    head: HeadStyle = "transformers"
    """As of a classification."""
    max_train_examples: Annotated[int, Field(ge=1)] | None = None
    """Of each task, as of other data."""


def check_averaged(tasks: Mapping[str, TaskSpec]) -> None:
    """Raise `ValueError` where the mean over tasks would add up what is good high and what is good low."""
    for name, task in tasks.items():
        if isinstance(task, RegressionTask) and task.metric in SMALLER_IS_BETTER:
            raise ValueError(
                f"tasks.{name}.metric must be one of which more is better where scores of tasks are averaged, "
                f"got {task.metric!r}"
            )


class TaskSuite(FrozenModel):
    """Tasks of one's own choice, by name."""

    type: Literal["tasks"] = "tasks"
    tasks: Annotated[dict[Name, TaskSpec], Field(min_length=1, max_length=200)]

    @model_validator(mode="after")
    def _scores_can_be_averaged(self) -> Self:
        if len(self.tasks) > 1:
            check_averaged(self.tasks)
        return self


SuiteSpec = Annotated[GlueSuite | TaskSuite, Field(discriminator="type")]
