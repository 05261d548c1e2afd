"""Checkpoints beside training: what is written, when it may be read, and who hears of a failure."""

from __future__ import annotations

import contextvars
import logging
import resource
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from pipelines.errors import JobCancelled
from pipelines.storage import StorageError
from pipelines.training.checkpoint import list_checkpoints, read_state, restore_checkpoint, state_of, write_checkpoint
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

    def late(*args):  # a slow storage, whose moment the test must choose
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


@pytest.fixture
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place that refuses writes: a file, where a folder is needed. Retries do not wait."""
    monkeypatch.setattr("pipelines.training.checkpoint_writer.RETRY_SECONDS", (0.0, 0.0))
    folder = tmp_path / "taken"
    folder.write_text("a file")
    return folder


def test_a_write_that_failed_is_told_when_asked_and_by_the_end(blocked: Path):
    networks, optimizer = trained(steps=1)
    with pytest.raises(StorageError, match="taken"), CheckpointWriter(str(blocked), "id", 1) as checkpoints:
        checkpoints.save(1, networks, optimizer)
    with CheckpointWriter(str(blocked), "id", 1) as checkpoints:
        checkpoints.raise_if_failed()
        checkpoints.save(1, networks, optimizer)
        with pytest.raises(StorageError, match="taken"):
            until_told(checkpoints)
        checkpoints.raise_if_failed()


def until_told(checkpoints: CheckpointWriter) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        checkpoints.raise_if_failed()
        time.sleep(0.01)


def test_a_newer_checkpoint_stands_in_for_one_that_failed(blocked: Path, caplog: pytest.LogCaptureFixture):
    networks, optimizer = trained(steps=1)

    def saves_twice() -> None:
        with CheckpointWriter(str(blocked), "id", 1) as checkpoints:
            checkpoints.save(1, networks, optimizer)
            checkpoints.save(2, networks, optimizer)

    with pytest.raises(StorageError):
        saves_twice()
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == ["checkpoint_failed"]
    with CheckpointWriter(str(blocked), "id", 1) as checkpoints:
        checkpoints.save(1, networks, optimizer)
        with pytest.raises(StorageError):
            until_told(checkpoints)
        blocked.unlink()
        checkpoints.save(2, networks, optimizer)
    assert [checkpoint.step for checkpoint in list_checkpoints(str(blocked))] == [2]


def test_a_storage_that_recovers_is_written_to(blocked: Path, caplog: pytest.LogCaptureFixture):
    """The storage takes files again once the log has told of the first refusal."""

    class Mends(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "checkpoint_write_is_tried_again":
                blocked.unlink()

    networks, optimizer = trained(steps=1)
    mends, logger = Mends(), logging.getLogger("pipelines.training.checkpoint_writer")
    logger.addHandler(mends)
    try:
        with CheckpointWriter(str(blocked), "id", keep=1) as checkpoints:
            checkpoints.save(1, networks, optimizer)
    finally:
        logger.removeHandler(mends)
    assert [checkpoint.step for checkpoint in list_checkpoints(str(blocked))] == [1]
    assert [record.message for record in caplog.records] == ["checkpoint_write_is_tried_again"]


def test_a_failed_write_does_not_hide_why_the_block_ended(blocked: Path, caplog: pytest.LogCaptureFixture):
    networks, optimizer = trained(steps=1)

    def saves_and_ends() -> None:
        with CheckpointWriter(str(blocked), "id", 1) as checkpoints:
            checkpoints.save(1, networks, optimizer)
            raise JobCancelled

    with caplog.at_level(logging.ERROR), pytest.raises(JobCancelled):
        saves_and_ends()
    assert [record.message for record in caplog.records] == ["checkpoint_failed"]


@pytest.mark.parametrize("room", [0, 300_000])
def test_a_disk_that_fills_up_is_named_and_the_checkpoint_before_stays(tmp_path: Path, monkeypatch, room: int):
    """Half-way torch goes on to close its archive, and would complain about that."""
    networks, optimizer = trained(steps=1)
    write_checkpoint(str(tmp_path), 1, state_of(networks, optimizer), "id", keep=1)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the kernel then answers with an error
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))
    try:
        with pytest.raises(StorageError, match="File too large"):
            write_checkpoint(str(tmp_path), 2, state_of(networks, optimizer), "id", keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert [checkpoint.step for checkpoint in list_checkpoints(str(tmp_path))] == [1]
    assert restore_checkpoint(str(tmp_path), networks, optimizer, "id") == 1


def test_the_log_of_a_write_names_the_job(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    names = contextvars.ContextVar("names", default="nobody")
    names.set("the job")
    seen = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append((record.getMessage(), names.get()))

    networks, optimizer = trained(steps=1)
    listener, logger = Listener(), logging.getLogger("pipelines.training.checkpoint_writer")
    logger.addHandler(listener)
    try:
        with caplog.at_level(logging.INFO), CheckpointWriter(str(tmp_path), "id", keep=1) as checkpoints:
            checkpoints.save(1, networks, optimizer)
    finally:
        logger.removeHandler(listener)
    assert seen == [("checkpoint_saved", "the job")]
