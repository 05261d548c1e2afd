"""Copies of checkpoints for probes: each that is due, whatever becomes of the others."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from training_task import make_task

from pipelines.finetuning.base_model import WEIGHTS_FILE
from pipelines.job import JobDirectory
from pipelines.probing import keeper
from pipelines.probing.keeper import CheckpointKeeper
from pipelines.training.task import TrainingTask
from pipelines.training.telemetry import SilentTelemetry
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker

PROBE = "{interval_steps: 10, tasks: {letters: {type: glue, name: RTE, uri: x}}, training: {max_sequence_length: 16}}"


@pytest.fixture
def task(tmp_path: Path) -> TrainingTask:
    """Trained to its end, with checkpoints of steps 10 and 20."""
    made = make_task(tmp_path, f"probe={PROBE}", "training.num_checkpoints_to_keep=10", name="jobs/pt-1")
    train(made, Worker(), SilentTelemetry())
    return made


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "POLL_SECONDS", 0.05)


def kept(task: TrainingTask, tmp_path: Path) -> CheckpointKeeper:
    """What a keeper has when training has ended."""
    assert task.spec.probe is not None
    made = CheckpointKeeper(task, task.spec.probe, JobDirectory(str(tmp_path / "jobs" / "pt-1")))
    with made:
        made.end()
        made._thread.join(timeout=60)
        assert made.is_done
    return made


def checkpoint(tmp_path: Path, step: int) -> Path:
    return tmp_path / "jobs" / "pt-1" / "checkpoints" / f"step_{step:08d}"


def test_every_due_checkpoint_is_copied(task: TrainingTask, tmp_path: Path) -> None:
    found = kept(task, tmp_path)
    assert sorted(found.kept) == [10, 20]
    assert found.missed() == {}
    assert all(Path(base.uri, WEIGHTS_FILE).exists() for base in found.kept.values())


def test_copies_outlive_their_checkpoints(task: TrainingTask, tmp_path: Path) -> None:
    """Those of an earlier attempt are found where checkpoints are gone."""
    kept(task, tmp_path)
    shutil.rmtree(checkpoint(tmp_path, 10))
    assert sorted(kept(task, tmp_path).kept) == [10, 20]


def test_a_damaged_checkpoint_costs_its_own_probe_alone(task: TrainingTask, tmp_path: Path) -> None:
    (checkpoint(tmp_path, 10) / "state.pt").write_bytes(b"")
    found = kept(task, tmp_path)
    assert sorted(found.kept) == [20]
    assert list(found.missed()) == [10]
    assert "must have sha256" in found.missed()[10]


def test_a_fault_that_nobody_foresaw_costs_one_probe_too(task: TrainingTask, tmp_path: Path) -> None:
    """A manifest of another program: no thread dies of it unheard, and the next checkpoint is copied."""
    state = checkpoint(tmp_path, 10) / "state.pt"
    torch.save({"weights": 1}, state)
    manifest = state.with_name("manifest.json")
    known = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**known, "sha256": hashlib.sha256(state.read_bytes()).hexdigest()}))
    found = kept(task, tmp_path)
    assert sorted(found.kept) == [20]
    assert found.missed() == {10: "KeyError: 'networks'"}


def test_a_checkpoint_that_was_deleted_is_missed_aloud(task: TrainingTask, tmp_path: Path) -> None:
    shutil.rmtree(checkpoint(tmp_path, 10))
    assert kept(task, tmp_path).missed() == {10: "its checkpoint was deleted before it could be copied"}


def test_a_storage_that_takes_nothing_is_named(task: TrainingTask, tmp_path: Path) -> None:
    (tmp_path / "jobs" / "pt-1" / "probes").write_text("no folder")
    missed = kept(task, tmp_path).missed()
    assert list(missed) == [10, 20]
    assert all("probes" in reason for reason in missed.values())
