"""How long a task is learned where nobody says it."""

import pytest
from finetuning_world import TASKS
from finished_runs import prepared_task, run_of

DATA = {"train": "x.jsonl", "validation": "y.jsonl"}


def run_with(kind="classification", glue_name=None, num_train_rows=3200, task_epochs=None, **training):
    task, extra = TASKS[kind]
    spec = task.model_validate({"data": DATA, "num_epochs": task_epochs, **extra})
    return run_of(prepared_task(spec, glue_name=glue_name, num_train_rows=num_train_rows), **training)


@pytest.mark.parametrize(
    ("num_train_rows", "epochs"),
    [(32, 10), (3_200, 10), (9_600, 10), (19_200, 5), (32_000, 3), (320_000, 3)],
)
@pytest.mark.parametrize("kind", ["classification", "regression", "token_classification", "multiple_choice"])
def test_little_data_are_gone_through_until_there_are_steps_enough(kind, num_train_rows, epochs):
    run = run_with(kind, num_train_rows=num_train_rows)
    steps = run.prepared.steps_per_epoch(run.training.batch_size)
    assert run.num_epochs(steps) == epochs
    assert run.num_steps(steps) == epochs * num_train_rows // 32


@pytest.mark.parametrize(("name", "epochs"), [("RTE", 10), ("STS-B", 10), ("CoLA", 3), ("MNLI", 3)])
def test_glue_has_the_originals(name, epochs):
    assert run_with(glue_name=name).num_epochs(100) == epochs


def test_questions_have_the_originals():
    assert run_with("question_answering").num_epochs(100) == 2


def test_what_is_said_counts():
    assert run_with(num_epochs=4.5).num_epochs(100) == 4.5
    assert run_with(task_epochs=6, num_epochs=4.5).num_epochs(100) == 6
    assert run_with(num_train_steps=7).num_steps(100) == 7
