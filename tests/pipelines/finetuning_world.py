"""A small pretrained network and tasks it can learn in seconds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from toy_network import write_network

from pipelines.finetuning.base_model import BaseModel
from pipelines.finetuning.keep_base_model import keep_base_model
from pipelines.finetuning.seed_task import SeedTask
from pipelines.specs.compute import WorkerSpec
from pipelines.specs.finetune import BaselineSpec, FinetuneTrainingSpec, ModelFiles
from pipelines.specs.task import (
    ClassificationTask,
    MultipleChoiceTask,
    QuestionAnsweringTask,
    RegressionTask,
    TokenClassificationTask,
    UserTask,
)
from pipelines.tasks.prepare import TaskPreparation, prepare_task

NAMES = ["anna", "bert", "carl", "dora", "emil", "fred", "gina", "hugo"]
PLACES = ["oslo", "rome", "bern", "lima", "cairo", "delhi", "tokyo", "paris"]
GOOD, BAD = ["good", "great", "fine", "lovely"], ["bad", "awful", "poor", "ugly"]
OTHERS = ["the", "a", "is", "was", "in", "lives", "very", "who", "where", "film", "book", "house", ".", "?"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NAMES, *PLACES, *GOOD, *BAD, *OTHERS]


def pretrained_folder(folder: Path) -> Path:
    """A network of random weights in the layout of Transformers, with a tokenizer."""
    sizes = {"hidden_size": 64, "intermediate_size": 128}
    return write_network(folder, "ElectraForPreTraining", TOKENS, initializer_range=0.1, **sizes)


def base_model(folder: Path, **fields: Any) -> BaseModel:
    """The network as a job keeps it."""
    source = ModelFiles(uri=str(pretrained_folder(folder / "pretrained")), **fields)
    return keep_base_model(source, str(folder / "job"), "")


def rows_of(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Rows whose answer stands in their words."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        is_good = rng.random() < 0.5
        word, thing = rng.choice(GOOD if is_good else BAD), rng.choice(["film", "book", "house"])
        name, place = rng.choice(NAMES), rng.choice(PLACES)
        text = f"the {thing} is {'very ' * rng.randint(0, 3)}{word} ."
        words = f"{name} lives in {place} .".split()
        match kind:
            case "classification":
                rows.append({"text": text, "label": "good" if is_good else "bad"})
            case "regression":
                rows.append({"text": text, "label": 4.0 if is_good else 1.0})
            case "token_classification":
                tags = ["B-PER", "O", "O", "B-LOC", "O"]
                rows.append({"tokens": words, "tags": tags})
            case "question_answering":
                context = f"{name} lives in {place} ."
                answers = {"text": [place], "answer_start": [context.index(place)]}
                rows.append({"id": str(len(rows)), "question": "where ?", "context": context, "answers": answers})
            case "multiple_choice":
                choices = [rng.choice(GOOD), rng.choice(BAD)]
                label = rng.randint(0, 1)
                rows.append({"text": "film", "choices": choices[::-1] if label else choices, "label": label})
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    """JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


TASKS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "classification": (ClassificationTask, {}),
    "regression": (RegressionTask, {"label_range": [0, 5], "metric": "pearson"}),
    "token_classification": (TokenClassificationTask, {"scheme": "BIO"}),
    "question_answering": (QuestionAnsweringTask, {"max_query_tokens": 8}),
    "multiple_choice": (MultipleChoiceTask, {}),
}


def toy_task(kind: str, folder: Path, num_train: int = 256, **fields: Any) -> UserTask:
    """A task of a kind with files of its own."""
    task, extra = TASKS[kind]
    data = {
        "train": write_rows(folder / f"{kind}-train.jsonl", rows_of(kind, num_train, 1)),
        "validation": write_rows(folder / f"{kind}-dev.jsonl", rows_of(kind, 64, 2)),
        "test": write_rows(folder / f"{kind}-test.jsonl", rows_of(kind, 32, 3)),
    }
    made: UserTask = task.model_validate({"data": data, **extra, **fields})
    return made


def seed_task(folder: Path, kind: str = "classification", seed: int = 1, run: str = "run", **training: Any) -> SeedTask:
    """One run, ready to go."""
    base = base_model(folder)
    task = toy_task(kind, folder)
    prepared = prepare_task(TaskPreparation(kind, task, base.uri, 64, str(folder / "storage"), BaselineSpec()))
    rules = {"num_epochs": 8, "learning_rate": 2e-3, "batch_size": 16, "layerwise_decay": 1.0, **training}
    return SeedTask(
        prepared=prepared,
        base=base,
        training=FinetuneTrainingSpec.model_validate(rules),
        compute=WorkerSpec(),
        seed=seed,
        uri=str(folder / run / str(seed)),
    )
