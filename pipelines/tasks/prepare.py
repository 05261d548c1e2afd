"""A task, read and tokenised once for all seeds and all jobs: `{storage_uri}/tasks/{digest}/`.

It holds a `.npz` of features and a `.json` of references (identifiers, and what an answer is scored against) for each
split, and `manifest.json`, written last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipelines import storage
from pipelines.errors import DataError
from pipelines.specs.finetune import BaselineSpec
from pipelines.specs.task import ClassificationTask, GlueName, GlueTask, TaskSpec, TokenClassificationTask, UserTask
from pipelines.storage.artifacts import MANIFEST_FILE, digest_of
from pipelines.tasks.baselines import majority_scores, tfidf_scores
from pipelines.tasks.examples import (
    ChoiceExample,
    Example,
    QuestionExample,
    Split,
    TaggedExample,
    TaskData,
    TextExample,
)
from pipelines.tasks.features import FeatureMaker, Features
from pipelines.tasks.files import TaskFiles, task_files
from pipelines.tasks.glue import glue_task
from pipelines.tasks.read import check_label_names, overlap, read_task
from pipelines.tokenizer import TOKENIZER_FILE, load_tokenizer, special_ids

FORMAT_VERSION = 1
TRAIN, VALIDATION, TEST = "train", "validation", "test"


@dataclass(frozen=True, slots=True)
class PreparedSplit:
    """A split of a prepared task."""

    name: str
    """`train`; `validation` or `test`, or these with the name of one of several, such as `validation mismatched`."""
    num_examples: int
    num_rows: int
    """Of its files."""
    num_bad_rows: int
    num_also_in_training: int
    """Examples that ask what a training example asks."""
    has_labels: bool
    report: tuple[str, ...] = ()
    """The first malformed rows, by file and line."""


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
        """What the answers to a split's examples are scored against, in order; see `_reference`."""
        examples: list[dict[str, Any]] = storage.read_json(storage.join(self.uri, _file(split, "json")))["examples"]
        return examples


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
    )


def _make(wanted: TaskPreparation, task: UserTask, files: TaskFiles, uri: str) -> dict[str, Any]:
    data = read_task(task, files)
    tokenizer = load_tokenizer(wanted.tokenizer_uri)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    maker = FeatureMaker(task, tokenizer, special_ids(tokenizer), data.labels, wanted.max_length)
    also_in_training = overlap(data)
    splits = []
    num_choices = 1
    num_rows: dict[str, int] = {}
    for name, split in _splits(data).items():
        features = maker.make(split.examples, is_for_training=name == TRAIN)
        features.write(storage.join(uri, _file(name, "npz")))
        num_rows[name] = features.num_rows
        references = [_reference(example) for example in split.examples]
        storage.write_json(storage.join(uri, _file(name, "json")), {"examples": references})
        splits.append(
            PreparedSplit(
                name=name,
                num_examples=len(split.examples),
                num_rows=split.num_rows,
                num_bad_rows=split.num_bad_rows,
                num_also_in_training=also_in_training.get(name, 0),
                has_labels=all(reference["label"] is not None for reference in references),
                report=split.report,
            )
        )
        if isinstance(split.examples[0], ChoiceExample):
            number = len(split.examples[0].choices)
            if name != TRAIN and number != num_choices:
                raise DataError(
                    f"the examples of {name} must have as many choices as those of train, "
                    f"got {number} and {num_choices}"
                )
            num_choices = number
    reckoned = {}
    if wanted.baselines.majority:
        reckoned["majority"] = majority_scores(task, data)
    if wanted.baselines.tfidf:
        reckoned["tfidf"] = tfidf_scores(task, data)
    return {
        "format_version": FORMAT_VERSION,
        "labels": list(data.labels),
        "label_counts": _label_counts(data),
        "num_choices": num_choices,
        "may_have_no_answer": any(
            isinstance(one, QuestionExample) and one.answers == () for one in data.train.examples
        ),
        "num_train_rows": num_rows[TRAIN] // num_choices,
        "splits": [asdict(split) for split in splits],
        "baselines": {name: scores for name, scores in reckoned.items() if scores},
    }


def _splits(data: TaskData) -> dict[str, Split]:
    return {
        TRAIN: data.train,
        **{f"{VALIDATION} {name}".strip(): split for name, split in data.validation.items()},
        **{f"{TEST} {name}".strip(): split for name, split in data.test.items()},
    }


def _file(split: str, ending: str) -> str:
    return f"{split.replace(' ', '-')}.{ending}"


def _reference(example: Example) -> dict[str, Any]:
    """`id` and `label`: a name, a number, a list of names, a choice, or a list of right answers; None if unknown."""
    match example:
        case TextExample() | ChoiceExample():
            return {"id": example.identifier, "label": example.label}
        case TaggedExample():
            tags = None if example.tags is None else list(example.tags)
            return {"id": example.identifier, "label": tags, "tokens": list(example.tokens)}
        case QuestionExample():
            texts = None if example.answers is None else [answer.text for answer in example.answers]
            return {"id": example.identifier, "label": texts, "context": example.context}


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
