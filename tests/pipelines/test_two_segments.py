"""Token types in pretraining: which batches have them, and that training reaches both."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from training_task import make_task

from pipelines import storage
from pipelines.job import JobDirectory
from pipelines.rows.loader import ValidationRows
from pipelines.specs.documents import SPEC_FILE
from pipelines.specs.jobs import JobSpec
from pipelines.specs.parsing import dump_spec, load_spec
from pipelines.specs.pretrain import PretrainSpec
from pipelines.training.batches import Batches, HeldOutBatches
from pipelines.training.checkpoint import list_checkpoints, read_state
from pipelines.training.task import build_networks
from pipelines.training.telemetry import SilentTelemetry
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker

pytestmark = pytest.mark.usefixtures("one_thread")


def test_training_reads_two_segments_and_held_out_rows_have_one(tmp_path: Path) -> None:
    task = make_task(tmp_path, "training.two_segment_fraction=1")
    batch, _ = Batches(task, Worker()).at(3)
    assert batch.token_type_ids is not None
    assert batch.token_type_ids.any(dim=1).all()
    assert not batch.token_type_ids[:, 0].any()
    separators = (batch.original_ids == task.corpus.special.sep) & (batch.token_type_ids == 0)
    assert separators.any(dim=1).all()
    masked = batch.original_ids.gather(1, batch.masked_positions)[batch.masked_weights.bool()]
    assert not (masked == task.corpus.special.sep).any()
    held_out, _ = HeldOutBatches(ValidationRows(task.corpus, 32, 16), task, Worker()).of(np.arange(4))
    assert held_out.token_type_ids is None


def test_at_0_no_row_has_token_types(tmp_path: Path) -> None:
    batch, _ = Batches(make_task(tmp_path, "training.two_segment_fraction=0"), Worker()).at(3)
    assert batch.token_type_ids is None


@pytest.mark.parametrize("fraction", [0.0, 0.9])
def test_both_token_types_are_trained_where_rows_have_two_segments(tmp_path: Path, fraction: float) -> None:
    rules = ("training.num_train_steps=6", "optimizer.weight_decay=0", "optimizer.warmup_steps=0")
    task = make_task(tmp_path, f"training.two_segment_fraction={fraction}", *rules)
    before = build_networks(task.spec, task.corpus).state_dict()["embeddings.token_type"].clone()
    train(task, Worker(), SilentTelemetry())
    after = read_state(list_checkpoints(task.checkpoints_uri)[-1])["networks"]["embeddings.token_type"]
    moved = [not torch.equal(one, other) for one, other in zip(before, after, strict=True)]
    assert moved == [True, fraction > 0]


def test_another_share_is_another_training_and_none_is_that_of_an_earlier_version(tmp_path: Path) -> None:
    """Which had no such field: its jobs go on as they began."""
    one, other = (make_task(tmp_path, f"training.two_segment_fraction={share}") for share in (0, 0.9))
    assert one.identity != other.identity
    directory = JobDirectory(str(tmp_path / "jobs" / "pt-1"))
    stored = json.loads(dump_spec(other.spec))
    del stored["training"]["two_segment_fraction"]
    storage.write_json(directory.path(SPEC_FILE), stored)
    found = directory.read_spec()
    assert isinstance(found, PretrainSpec)
    assert found.training.two_segment_fraction == 0
    directory.write_spec(other.spec)
    again = directory.read_spec()
    assert isinstance(again, PretrainSpec)
    assert again.training.two_segment_fraction == 0.9


@pytest.mark.parametrize("preset", ["tiny", "small", "base", "large"])
def test_presets_have_the_originals_share(preset: str) -> None:
    spec: JobSpec = load_spec(f"kind: pretrain\npreset: {preset}\n")
    assert isinstance(spec, PretrainSpec)
    assert spec.training.two_segment_fraction == 0.9


def test_a_rate_of_the_embeddings_is_another_training(tmp_path: Path) -> None:
    plain, own = make_task(tmp_path), make_task(tmp_path, "optimizer.embedding_learning_rate=0.01")
    assert plain.identity != own.identity
