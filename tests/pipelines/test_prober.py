"""What a probe leaves, without Ray: its outcome, which holds whatever becomes of the data, and no weights."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from finetuning_world import rows_of, write_rows
from training_task import make_task

from pipelines.finetuning.base_model import WEIGHTS_FILE, BaseModel
from pipelines.finetuning.copy_network import copy_network
from pipelines.finetuning.run_seed import run_seed
from pipelines.finetuning.seed_task import SeedTask
from pipelines.job import JobDirectory
from pipelines.probing.prober import Prober
from pipelines.record.identity import RunIdentity
from pipelines.specs.finetune import BaselineSpec
from pipelines.tasks.prepare import PreparedTask, TaskPreparation, prepare_task
from pipelines.training.task import TrainingTask, build_networks

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def task(tmp_path: Path) -> TrainingTask:
    """Tasks of a probe stand in its spec; nothing is trained here."""
    data = {split: write_rows(tmp_path / f"{split}.jsonl", rows_of("classification", 16, 1)) for split in ("a", "b")}
    letters = f"{{type: classification, data: {{train: {data['a']}, validation: {data['b']}}}}}"
    rules = "{seeds: [1, 2], max_sequence_length: 16, num_train_steps: 1}"
    return make_task(tmp_path, f"probe={{interval_steps: 10, tasks: {{letters: {letters}}}, training: {rules}}}")


def base_of(task: TrainingTask, tmp_path: Path) -> BaseModel:
    """A copy of a checkpoint at step 10, of which nothing has come yet."""
    networks = build_networks(task.spec, task.corpus)
    return copy_network(networks, str(tmp_path / "job/probes/step_00000010"), task.corpus.special, "job at step 10")


def prober_of(task: TrainingTask, tmp_path: Path) -> Prober:
    return Prober(task, (prepared_of(task, tmp_path),), JobDirectory(str(tmp_path / "job")), RunIdentity("", "", ""))


def prepared_of(task: TrainingTask, tmp_path: Path) -> PreparedTask:
    assert task.spec.probe is not None
    letters = task.spec.probe.tasks["letters"]
    return prepare_task(
        TaskPreparation("letters", letters, task.corpus.tokenizer_uri, 16, str(tmp_path), BaselineSpec(tfidf=False))
    )


def runs_of(task: TrainingTask, base: BaseModel, tmp_path: Path) -> list[SeedTask]:
    probe, prepared = task.spec.probe, prepared_of(task, tmp_path)
    assert probe is not None
    return [
        SeedTask(prepared, base, probe.training, probe.compute, seed, f"{base.uri}/letters/{seed}") for seed in (1, 2)
    ]


def test_a_finished_probe_holds_though_its_data_are_touched(task: TrainingTask, tmp_path: Path) -> None:
    """By then the weights that it was finetuned from are gone."""
    base = base_of(task, tmp_path)
    for run in runs_of(task, base, tmp_path):
        run_seed(run)
    point = prober_of(task, tmp_path)._probed(10, base)
    assert (point.step, set(point.tasks[0].by_seed)) == (10, {"1", "2"})
    assert not Path(base.uri, WEIGHTS_FILE).exists()
    identities = {run.identity for run in runs_of(task, base, tmp_path)}
    os.utime(tmp_path / "b.jsonl", (1, 1))
    assert identities.isdisjoint(run.identity for run in runs_of(task, base, tmp_path))
    assert prober_of(task, tmp_path)._probed(10, base) == point


def test_nothing_of_runs_that_were_killed_after_their_last_word_is_left(task: TrainingTask, tmp_path: Path) -> None:
    base = base_of(task, tmp_path)
    for run in runs_of(task, base, tmp_path):
        run_seed(run)
        Path(run.uri, "checkpoints", "step_00000001").mkdir(parents=True)
        Path(run.uri, "checkpoints", "step_00000001", "state.pt").write_bytes(b"much")
    prober_of(task, tmp_path)._probed(10, base)
    left = {path.name for path in Path(base.uri).rglob("*") if path.is_file()}
    assert not left & {"state.pt", "weights.safetensors"}
    assert left >= {"outcome.json", "result.json"}


def test_weights_that_outlived_the_outcome_go_with_the_next_attempt(task: TrainingTask, tmp_path: Path) -> None:
    base = base_of(task, tmp_path)
    for run in runs_of(task, base, tmp_path):
        run_seed(run)
    point = prober_of(task, tmp_path)._probed(10, base)
    again = base_of(task, tmp_path)
    assert again == base
    assert prober_of(task, tmp_path)._probed(10, again) == point
    assert not Path(base.uri, WEIGHTS_FILE).exists()
