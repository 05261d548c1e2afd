"""A task, read and tokenised once for all seeds and all jobs: `{storage_uri}/tasks/{digest}/`.

It holds a `.npz` of features for each split, a `.json` of references (identifiers, and what an answer is scored
against) for each but the training split, and `manifest.json`, written last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipelines import storage
from pipelines.errors import DataError
from pipelines.specs.finetune import BaselineSpec
from pipelines.specs.task import ClassificationTask, GlueName, GlueTask, TaskSpec, TokenClassificationTask, UserTask
from pipelines.storage.artifacts import MANIFEST_FILE, digest_of
from pipelines.tasks.baselines import Baseline, majority_scores, tfidf_baseline
from pipelines.tasks.examples import (
    ChoiceExample,
    Example,
    QuestionExample,
    Split,
    TaggedExample,
    TaskData,
    TextExample,
)
from pipelines.tasks.feature_maker import FeatureMaker
from pipelines.tasks.features import Features
from pipelines.tasks.files import MAX_REPORTED_ROWS, TaskFiles, task_files
from pipelines.tasks.glue import glue_task
from pipelines.tasks.read import check_label_names, overlap, read_task
from pipelines.tasks.squad_file import has_unanswerable
from pipelines.tokenizer import TOKENIZER_FILE, load_tokenizer, special_ids

FORMAT_VERSION = 5
"""Raised when files are read or tokenised in another way: a copy that was made the old way is not found then."""
TRAIN, VALIDATION, TEST = "train", "validation", "test"


@dataclass(frozen=True, slots=True)
class PreparedSplit:
    """A split of a prepared task."""

    name: str
    """`train`; `validation` or `test`, or these with the name of one of several, such as `validation mismatched`."""
    num_examples: int
    """Of the training split, those that are learned from."""
    num_rows: int
    """Of its files."""
    num_bad_rows: int
    num_also_in_training: int
    """Examples that ask what a training example asks."""
    num_labelled: int
    """Examples that can be scored."""
    num_cut: int
    """Examples of which a text is longer than what is read of it."""
    num_without_window: int = 0
    """Training questions that are left out, for no window holds the whole of their answer."""
    only_label: str | float | None = None
    """Of texts that have labels: the one that all of them have."""
    report: tuple[str, ...] = ()
    """The first `MAX_REPORTED_ROWS` malformed rows, by file and line, then as many of the examples that training has
    too."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be known of it to read the scores, a sentence each."""
        notes = []
        if self.num_without_window:
            notes.append(
                f"{self.name}: questions left out, since their answers fit into no window of max_sequence_length: "
                f"{self.num_without_window:,}"
            )
        if self.num_cut:
            notes.append(
                f"{self.name}: examples that are longer than what is read of them: "
                f"{self.num_cut:,} of {self.num_examples:,}"
            )
        if 0 < self.num_labelled < self.num_examples:
            notes.append(
                f"{self.name}: examples that have a label, and that scores are of: "
                f"{self.num_labelled:,} of {self.num_examples:,}"
            )
        if self.only_label is not None:
            notes.append(
                f"{self.name}: every label is {self.only_label!r}, so that correlations, and figures of other labels, "
                "say nothing"
            )
        return tuple(notes)


@dataclass(frozen=True, slots=True)
class PreparedTask:
    """Everything a seed needs to know of its task."""

    name: str
    uri: str
    digest: str
    task: UserTask
    glue_name: GlueName | None
    labels: tuple[str, ...]
    label_counts: tuple[int, ...]
    """Of the training examples, or their words, by label."""
    num_choices: int
    num_train_rows: int
    """Examples of the training split as they are learned from: pairs both ways round, each window of a question."""
    may_have_no_answer: bool
    """Some training questions have none, so "no answer" is an answer."""
    splits: tuple[PreparedSplit, ...]
    """The training split, then the validation splits, the one that seeds are compared on first, then test splits."""
    baselines: dict[str, dict[str, float]]
    """`majority` and `tfidf` to their scores on the first validation split, as far as the task has them."""
    baseline_notes: tuple[str, ...]
    """What was left out of them, and why."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be known to read the scores, a sentence each."""
        return (*(note for split in self.splits for note in split.notes), *self.baseline_notes)

    def steps_per_epoch(self, batch_size: int) -> int:
        """Optimizer steps of one pass over the training rows."""
        return -(-self.num_train_rows // batch_size)

    def splits_of(self, kind: str) -> tuple[PreparedSplit, ...]:
        """Validation or test splits."""
        return tuple(split for split in self.splits if split.name.split(" ")[0] == kind)

    def features(self, split: str) -> Features:
        """The rows of a split."""
        return Features.read(storage.join(self.uri, _file(split, "npz")))

    def references(self, split: str) -> list[dict[str, Any]]:
        """What the answers to a validation or test split's examples are scored against, in order: `id`, and `label`,
        a name, a number, a list of names, a choice, or a list of right answers; None if unknown. Of words `tokens`, of
        a question `context`.
        """
        document: dict[str, Any] = storage.read_json(storage.join(self.uri, _file(split, "json")))
        contexts = document["contexts"]
        return [
            {**one, "context": contexts[one["context"]]} if "context" in one else one for one in document["examples"]
        ]


@dataclass(frozen=True)
class TaskPreparation:
    """What `prepare_task` needs to know."""

    name: str
    """Of the task in its job."""
    spec: TaskSpec
    tokenizer_uri: str
    """Folder with the model's `tokenizer.json`."""
    max_length: int
    """Tokens of a row at most."""
    storage_uri: str
    """Root of the artifacts."""
    baselines: BaselineSpec
    """Which to reckon."""


def prepare_task(wanted: TaskPreparation) -> PreparedTask:
    """Read, check and tokenise a task; a complete copy of the same is returned as it is.

    Raises:
        DataError: the files give no such task.
        StorageError: a file cannot be read or written.
    """
    spec = wanted.spec
    task, files = glue_task(spec) if isinstance(spec, GlueTask) else (spec, task_files(spec.data))
    digest = _digest(wanted, task, files)
    uri = storage.join(wanted.storage_uri, "tasks", digest)
    if not storage.exists(storage.join(uri, MANIFEST_FILE)):
        storage.write_json(storage.join(uri, MANIFEST_FILE), _make(wanted, task, files, uri))
    manifest = storage.read_json(storage.join(uri, MANIFEST_FILE))
    if isinstance(task, ClassificationTask | TokenClassificationTask):
        check_label_names(task, tuple(manifest["labels"]))  # another job may have prepared it, with other weights
    return PreparedTask(
        name=wanted.name,
        uri=uri,
        digest=digest,
        # How it is learned is this job's; how it was read is in the digest.
        task=task,
        glue_name=spec.name if isinstance(spec, GlueTask) else None,
        labels=tuple(manifest["labels"]),
        label_counts=tuple(manifest["label_counts"]),
        num_choices=manifest["num_choices"],
        num_train_rows=manifest["num_train_rows"],
        may_have_no_answer=manifest["may_have_no_answer"],
        splits=tuple(PreparedSplit(**{**split, "report": tuple(split["report"])}) for split in manifest["splits"]),
        baselines=manifest["baselines"],
        baseline_notes=tuple(manifest["baseline_notes"]),
    )


def _make(wanted: TaskPreparation, task: UserTask, files: TaskFiles, uri: str) -> dict[str, Any]:
    data = read_task(task, files)
    tokenizer = load_tokenizer(wanted.tokenizer_uri)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # as in pretraining: a text that speaks of "[SEP]" does not end there
    maker = FeatureMaker(task, tokenizer, special_ids(tokenizer), data.labels, wanted.max_length)
    also_in_training = overlap(data)
    num_choices = _num_choices(_splits(data))
    num_train_rows = 0
    splits = []
    for name, split in _splits(data).items():
        features = maker.make(split.examples, is_for_training=name == TRAIN)
        features.write(storage.join(uri, _file(name, "npz")))
        if name == TRAIN:
            num_train_rows = features.num_rows
        else:
            storage.write_json(storage.join(uri, _file(name, "json")), _references(split.examples))
        splits.append(_prepared_split(name, split, features, also_in_training.get(name, ())))
    tfidf = tfidf_baseline(task, data) if wanted.baselines.tfidf else Baseline({})
    baselines = {"majority": majority_scores(task, data) if wanted.baselines.majority else {}, "tfidf": tfidf.scores}
    return {
        "format_version": FORMAT_VERSION,
        "labels": list(data.labels),
        "label_counts": _label_counts(data),
        "num_choices": num_choices,
        "may_have_no_answer": has_unanswerable(data.train),
        "num_train_rows": num_train_rows // num_choices,
        "splits": [asdict(split) for split in splits],
        "baselines": {name: scores for name, scores in baselines.items() if scores},
        "baseline_notes": [tfidf.note] if tfidf.note else [],
    }


def _num_choices(splits: Mapping[str, Split]) -> int:
    """Choices of each example; 1 where there are none to choose from."""
    numbers = {
        name: len(split.examples[0].choices) if isinstance(split.examples[0], ChoiceExample) else 1
        for name, split in splits.items()
    }
    for name, number in numbers.items():
        if number != numbers[TRAIN]:
            raise DataError(
                f"the examples of {name} must have as many choices as those of train, got {number} and {numbers[TRAIN]}"
            )
    return numbers[TRAIN]


def _prepared_split(name: str, split: Split, features: Features, also_in_training: Sequence[str]) -> PreparedSplit:
    shared = (f"{identifier}: a training example asks the same" for identifier in also_in_training[:MAX_REPORTED_ROWS])
    labels = {example.label for example in split.examples if isinstance(example, TextExample)} - {None}
    return PreparedSplit(
        name=name,
        num_examples=features.num_examples,
        num_rows=split.num_rows,
        num_bad_rows=split.num_bad_rows,
        num_also_in_training=len(also_in_training),
        num_labelled=sum(_label(example) is not None for example in split.examples),
        num_cut=features.num_cut,
        num_without_window=len(split.examples) - features.num_examples,
        only_label=labels.pop() if len(labels) == 1 else None,
        report=(*split.report, *shared),
    )


def _splits(data: TaskData) -> dict[str, Split]:
    return {
        TRAIN: data.train,
        **{f"{VALIDATION} {name}".strip(): split for name, split in data.validation.items()},
        **{f"{TEST} {name}".strip(): split for name, split in data.test.items()},
    }


def _file(split: str, ending: str) -> str:
    return f"{split.replace(' ', '-')}.{ending}"


def _references(examples: Sequence[Example]) -> dict[str, Any]:
    """As `PreparedTask.references` reads them. A context stands there once, and has many questions."""
    contexts: dict[str, int] = {}
    references: list[dict[str, Any]] = []
    for example in examples:
        references.append({"id": example.identifier, "label": _label(example)})
        if isinstance(example, TaggedExample):
            references[-1]["tokens"] = list(example.tokens)
        if isinstance(example, QuestionExample):
            references[-1]["context"] = contexts.setdefault(example.context, len(contexts))
    return {"examples": references, "contexts": list(contexts)}


def _label(example: Example) -> str | float | list[str] | None:
    match example:
        case TextExample() | ChoiceExample():
            return example.label
        case TaggedExample():
            return None if example.tags is None else list(example.tags)
        case QuestionExample():
            return None if example.answers is None else [answer.text for answer in example.answers]


def _label_counts(data: TaskData) -> list[int]:
    counts = dict.fromkeys(data.labels, 0)
    for example in data.train.examples:
        if isinstance(example, TextExample) and isinstance(example.label, str):
            counts[example.label] += 1
        elif isinstance(example, TaggedExample):
            for tag in example.tags or ():
                counts[tag] += 1
    return list(counts.values())


def _digest(wanted: TaskPreparation, task: UserTask, files: TaskFiles) -> str:
    """Of what decides the bytes: files with size and time or ETag, columns, tokenizer, length."""
    decisive = task.model_dump(mode="json", exclude={"num_epochs", "max_sequence_length", "head"})
    if isinstance(task, ClassificationTask | TokenClassificationTask):
        decisive.pop("class_weights")
    tokenizer = storage.read_bytes(storage.join(wanted.tokenizer_uri, TOKENIZER_FILE))
    return digest_of(
        {
            "format_version": FORMAT_VERSION,
            "task": decisive,
            "train": _identities(files.train.uris),
            "validation": {name: _identities(split.uris) for name, split in files.validation.items()},
            "test": {name: _identities(split.uris) for name, split in files.test.items()},
            "tokenizer": hashlib.sha256(tokenizer).hexdigest(),
            "max_length": wanted.max_length,
            "baselines": wanted.baselines.model_dump(mode="json"),
        }
    )


def _identities(uris: Sequence[str]) -> list[list[str]]:
    return [[file.uri, file.identity] for uri in uris for file in storage.expand(uri)]
