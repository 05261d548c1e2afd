"""A job small enough for a test: real text, two workers, some seconds of training."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from service.client import ElectraClient
from service.http.schemas import JobDetail
from service.local import LocalStack
from service.local.processes import marked_processes

JOB_TIMEOUT_SECONDS = 900
TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
NUM_STEPS = 800

SPEC: dict[str, Any] = {
    "kind": "pretrain",
    "preset": "tiny",
    "name": "end-to-end",
    "corpus": {
        "sources": [
            {
                "type": "python_docs",
                "packages": ["fastapi", "numpy", "pydantic", "pytest", "ray", "sqlalchemy"],
                "include_standard_library": False,
            }
        ]
    },
    "tokenizer": {"vocab_size": 1024, "limit_alphabet": 200},
    "model": {"hidden_size": 64, "embedding_size": 64, "num_attention_heads": 2, "intermediate_size": 128},
    "optimizer": {"warmup_steps": 100},
    "training": {"num_train_steps": NUM_STEPS, "checkpoint_interval_steps": 200, "log_interval_steps": 25},
    "compute": {"num_workers": 2},
    "evaluation": {"interval_steps": 400, "max_rows": 128},
}


@dataclass(frozen=True)
class MainJob:
    """A finished job."""

    detail: JobDetail
    exports: dict[str, Path]

    @property
    def weights(self) -> dict[str, dict[str, Any]]:
        """Tensors of both exports."""
        return {network: load_file(folder / "model.safetensors") for network, folder in self.exports.items()}


def run_main_job(client: ElectraClient, overrides: Sequence[str] = ()) -> MainJob:
    """Submit over REST and wait for the end."""
    return finished(client, client.submit(SPEC, overrides).job_id)


def finished(client: ElectraClient, job_id: str) -> MainJob:
    """Wait until the job succeeded; shows its failure and log otherwise."""
    job = wait_for(client, job_id, lambda job: job.state in TERMINAL, "its end")
    assert job.state == "SUCCEEDED", f"{job.failure}\n{client.logs(job_id)[-4000:]}"
    assert job.result is not None
    return MainJob(job, {model.network: Path(model.export_uri) for model in job.result.models})


def wait_for(client: ElectraClient, job_id: str, condition: Callable[[JobDetail], bool], what: str) -> JobDetail:
    """Poll until the condition holds."""
    deadline = time.monotonic() + JOB_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        job = client.job(job_id)
        if condition(job):
            return job
        time.sleep(0.3)
    raise TimeoutError(f"{job_id} did not reach {what} within {JOB_TIMEOUT_SECONDS} s: {client.job(job_id)}")


def wait_until_listed(client: ElectraClient, job_id: str) -> None:
    """Poll until the service knows the job."""
    deadline = time.monotonic() + JOB_TIMEOUT_SECONDS
    while all(job.job_id != job_id for job in client.iter_jobs()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{job_id} was not listed within {JOB_TIMEOUT_SECONDS} s")
        time.sleep(0.3)


def wait_for_step(client: ElectraClient, job_id: str, step: int) -> JobDetail:
    """Wait until training is past a step, and still on."""

    def is_past(job: JobDetail) -> bool:
        assert job.state not in TERMINAL, f"{job.state} before step {step}: {job.failure}"
        return job.progress is not None and (job.progress.step or 0) >= step

    job = wait_for(client, job_id, is_past, f"step {step}")
    assert job.progress is not None
    assert job.progress.stage == "train"
    return job


def kill_process(stack: LocalStack, command_start: str, *needles: str) -> int:
    """SIGKILL the one process of the stack whose command line starts so and contains the needles."""
    found = [pid for pid in marked_processes(stack.stack_id) if _matches(pid, command_start, needles)]
    assert found, f"no process of the stack runs {command_start!r} {needles}"
    os.kill(found[0], signal.SIGKILL)
    return found[0]


def _matches(pid: int, command_start: str, needles: Sequence[str]) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\x00", b" ").decode(errors="replace")
    except OSError:
        return False
    return command.startswith(command_start) and all(needle in command for needle in needles)
