"""Checkpoints beside training: what is written, when it may be read, and who hears of a failure."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from pipelines.errors import JobCancelled
from pipelines.storage import StorageError
from pipelines.training.checkpoint import list_checkpoints, read_state, restore_checkpoint, write_checkpoint
from pipelines.training.checkpoint_writer import CheckpointWriter


class Tied(nn.Module):
    """Two names for one table, as a decoder has that is tied to its embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1_000, 64)
        self.decoder = nn.Linear(64, 1_000)
        self.decoder.weight = self.embedding.weight


def trained(steps: int) -> tuple[Tied, torch.optim.Optimizer]:
    torch.manual_seed(0)
    networks = Tied()
    optimizer = torch.optim.AdamW(networks.parameters())
    for _ in range(steps):
        take_step(networks, optimizer)
    return networks, optimizer


def take_step(networks: Tied, optimizer: torch.optim.Optimizer) -> None:
    networks.decoder(networks.embedding(torch.arange(8))).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_the_state_of_its_step_is_written_while_training_goes_on(tmp_path: Path, monkeypatch):
    may_write = threading.Event()

    def late(*args):
        assert may_write.wait(60), "the test went on without saying so"
        return write_checkpoint(*args)

    monkeypatch.setattr("pipelines.training.checkpoint_writer.write_checkpoint", late)
    networks, optimizer = trained(steps=3)
    with CheckpointWriter(str(tmp_path), "id", keep=2) as checkpoints:
        checkpoints.save(3, networks, optimizer)
        take_step(networks, optimizer)
        assert list_checkpoints(str(tmp_path)) == []
        may_write.set()
    then, _ = trained(steps=3)
    restored, moments = trained(steps=0)
    assert restore_checkpoint(str(tmp_path), restored, moments, "id") == 3
    assert all(torch.equal(a, b) for a, b in zip(restored.parameters(), then.parameters(), strict=True))
    take_step(restored, moments)
    assert all(torch.equal(a, b) for a, b in zip(restored.parameters(), networks.parameters(), strict=True))


def test_tensors_of_one_memory_are_written_once(tmp_path: Path):
    networks, optimizer = trained(steps=1)
    with CheckpointWriter(str(tmp_path), "id", keep=1) as checkpoints:
        checkpoints.save(1, networks, optimizer)
    (checkpoint,) = list_checkpoints(str(tmp_path))
    table_bytes = 1_000 * 64 * 4
    assert 3 * table_bytes < (Path(checkpoint.uri) / "state.pt").stat().st_size < 3.2 * table_bytes
    assert read_state(checkpoint)["networks"].keys() == networks.state_dict().keys()


def test_saves_wait_for_one_another_and_the_oldest_go(tmp_path: Path):
    networks, optimizer = trained(steps=1)
    with CheckpointWriter(str(tmp_path), "id", keep=2) as checkpoints:
        for step in range(1, 6):
            checkpoints.save(step, networks, optimizer)
    assert [checkpoint.step for checkpoint in list_checkpoints(str(tmp_path))] == [4, 5]


def test_a_write_that_failed_is_told_by_the_next_save_and_by_the_end(tmp_path: Path):
    (tmp_path / "taken").write_text("a file, where a folder is needed")
    networks, optimizer = trained(steps=1)
    with pytest.raises(StorageError, match="taken"), CheckpointWriter(str(tmp_path / "taken"), "id", 1) as checkpoints:
        checkpoints.save(1, networks, optimizer)
    with CheckpointWriter(str(tmp_path / "taken"), "id", 1) as checkpoints:
        checkpoints.save(1, networks, optimizer)
        with pytest.raises(StorageError, match="taken"):
            checkpoints.save(2, networks, optimizer)


def test_a_failed_write_does_not_hide_why_the_block_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "taken").write_text("a file, where a folder is needed")
    networks, optimizer = trained(steps=1)

    def saves_and_ends() -> None:
        with CheckpointWriter(str(tmp_path / "taken"), "id", 1) as checkpoints:
            checkpoints.save(1, networks, optimizer)
            raise JobCancelled

    with caplog.at_level(logging.ERROR), pytest.raises(JobCancelled):
        saves_and_ends()
    assert [record.message for record in caplog.records] == ["checkpoint_failed"]


def test_a_file_cut_short_in_writing_is_no_checkpoint(tmp_path: Path, monkeypatch):
    """The storage fails half-way: the checkpoint before it stays, and is the one that is found."""
    networks, optimizer = trained(steps=1)
    with CheckpointWriter(str(tmp_path), "id", keep=1) as checkpoints:
        checkpoints.save(1, networks, optimizer)

    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipelines.training.checkpoint._Counted.write", full)
    with pytest.raises((StorageError, OSError)), CheckpointWriter(str(tmp_path), "id", keep=1) as checkpoints:
        checkpoints.save(2, networks, optimizer)
    assert [checkpoint.step for checkpoint in list_checkpoints(str(tmp_path))] == [1]
    assert restore_checkpoint(str(tmp_path), networks, optimizer, "id") == 1
