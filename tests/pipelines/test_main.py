"""The entrypoint: what a fault is called, and whether another attempt could help."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import NoReturn

import pytest

from pipelines import main as entrypoint
from pipelines.claims import claim
from pipelines.errors import (
    CheckpointError,
    CorpusError,
    NonFiniteLossError,
    RecordError,
    ResourceError,
    StorageError,
)
from pipelines.job import JobDirectory
from pipelines.main import STOPPED_STATUS, Stopped, describe_failure, main
from pipelines.specs.parsing import resolve_spec
from pipelines.specs.presets import PRESETS
from pipelines.specs.spec_errors import SpecError


def spec_error() -> SpecError:
    with pytest.raises(SpecError) as caught:
        resolve_spec({"kind": "pretrain", "foo": 1})
    return caught.value


@pytest.mark.parametrize(
    ("error", "stage", "code", "can_retry"),
    [
        (CorpusError("no text", ("a.jsonl:2: broken",)), "prepare", "data", False),
        (StorageError("/data/x.jsonl", "not found"), "prepare", "data", False),
        (StorageError("/our/storage/texts/x", "disk full"), "prepare", "internal", True),
        (StorageError("/our/storage/jobs/x", "disk full"), "train", "internal", True),
        (NonFiniteLossError(7), "train", "non_finite_loss", False),
        (CheckpointError("other spec"), "train", "checkpoint", False),
        (ResourceError("too few CPUs"), "start", "resources", False),
        (RecordError("MLflow is away"), "record", "record", True),
        (RecordError("experiment deleted", can_retry=False), "start", "record", False),
        (ConnectionError("Ray's head is away"), "start", "internal", True),
        (KeyError("a bug"), "train", "internal", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_fault_is_named_and_retried_only_where_that_can_help(error, stage, code, can_retry):
    failure = describe_failure(error, stage, "/our/storage")
    assert (failure.code, failure.stage, failure.can_retry) == (code, stage, can_retry)


def test_a_report_and_a_step_reach_the_user():
    assert describe_failure(CorpusError("m", ("line 1",)), "prepare", "/s").details == ("line 1",)
    assert describe_failure(NonFiniteLossError(7), "train", "/s").step == 7
    assert "foo" in describe_failure(spec_error(), "start", "/s").details[0]


def test_a_bad_spec_file_starts_nothing(tmp_path: Path, capsys):
    spec = tmp_path / "spec.yaml"
    spec.write_text("kind: pretrain\nmodel: {hidden_size: 10, num_attention_heads: 4}")
    assert main(["--spec", str(spec), "--storage-uri", str(tmp_path / "storage")]) == 2
    assert "hidden_size must be a multiple of num_attention_heads, got 10 and 4" in capsys.readouterr().err
    assert not (tmp_path / "storage").exists()


def test_remote_storage_without_mlflow_is_refused(monkeypatch, tmp_path: Path, capsys, s3_endpoint, bucket):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    spec = tmp_path / "spec.yaml"
    spec.write_text("kind: pretrain\npreset: tiny")
    assert main(["--spec", str(spec), "--storage-uri", f"{bucket}/electra"]) == 2
    assert "MLFLOW_TRACKING_URI must be set" in capsys.readouterr().err


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_fails_when_the_head_is_lost_is_tried_again(monkeypatch, tmp_path: Path, is_gone: bool):
    """In whatever words it fails."""

    def stages(*_: object) -> NoReturn:
        if is_gone:
            head.close()
        raise RuntimeError("the placement group was removed")

    head = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{head.getsockname()[1]}"
    directory = JobDirectory(str(tmp_path / "jobs" / "pt-1"))
    directory.write_spec(PRESETS["tiny"]())
    mine, _ = claim(directory.uri, 1)
    monkeypatch.setattr(entrypoint, "connect_to_ray", lambda: None)
    monkeypatch.setattr(entrypoint, "head_address", lambda: address)
    monkeypatch.setattr(entrypoint, "_stages_of", lambda spec: stages)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with head:
            result = entrypoint.run(directory, mine, f"sqlite:///{tmp_path}/mlflow.sqlite")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.failure is not None
    assert result.failure.can_retry is is_gone
    assert "the placement group was removed" in result.failure.message


def test_a_stop_that_comes_out_of_c_code_as_another_error_is_no_failure(monkeypatch, tmp_path: Path):
    """As `Stopped` did out of Ray's `get`: the SystemError of a constructor in whose midst SIGTERM came."""

    def stages(*_: object) -> NoReturn:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Stopped as error:
            raise SystemError("returned a result with an exception set") from error
        raise AssertionError("nothing was stopped")

    directory = JobDirectory(str(tmp_path / "jobs" / "pt-1"))
    directory.write_spec(PRESETS["tiny"]())
    mine, _ = claim(directory.uri, 1)
    monkeypatch.setattr(entrypoint, "connect_to_ray", lambda: None)
    monkeypatch.setattr(entrypoint, "_stages_of", lambda spec: stages)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as caught:
            entrypoint.run(directory, mine, f"sqlite:///{tmp_path}/mlflow.sqlite")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.code == STOPPED_STATUS
    assert directory.read_result() is None
