"""The launcher against a real Ray: one head with token authentication on, and nothing left of it afterwards."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from service.dispatch.launcher import RayLauncher
from service.interfaces import AttemptState, LauncherUnavailableError
from service.launches import attempt_launch
from service.queueing.records import NodeRoom
from service.settings import Settings

pytestmark = pytest.mark.slow

JOB = """
import sys, time
print("arguments", *sys.argv[1:], flush=True)
time.sleep(60)
"""


@dataclass(frozen=True)
class Head:
    settings: Settings
    launcher: RayLauncher


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(is_true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "took too long"
        time.sleep(0.3)


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    # Ray's sockets lie below its folder, and a socket's path may have 107 characters: pytest's own are too long.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        token = Path(folder) / "token"
        token.write_text(secrets.token_hex(32))
        # A python that answers to `-m pipelines.main` whatever the real one does.
        fake = Path(folder) / "python"
        fake.write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/job.py "$@"\n')
        fake.chmod(0o755)
        (Path(folder) / "job.py").write_text(JOB)
        port = free_port()
        command = f"""{Path(sys.executable).parent}/ray start --head --block --num-cpus 2 --port {free_port()}
            --dashboard-port {port} --ray-client-server-port {free_port()} --node-ip-address 127.0.0.1
            --min-worker-port 0 --max-worker-port 0 --dashboard-agent-listen-port {free_port()}
            --object-store-memory 80000000 --temp-dir {folder}/ray --disable-usage-stats"""
        environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        with (Path(folder) / "ray.log").open("wb") as log:
            process = subprocess.Popen(command.split(), env=environment, stdout=log, stderr=log, start_new_session=True)
        settings = Settings(
            home=Path(folder),
            ray_address=f"http://127.0.0.1:{port}",
            ray_token_path=token,
            job_python=str(fake),
            ray_timeout_seconds=20,
        )
        launcher = RayLauncher(settings)

        def is_up() -> bool:
            assert process.poll() is None, (Path(folder) / "ray.log").read_text()
            try:
                return launcher.capacity() is not None
            except LauncherUnavailableError:
                return False

        try:
            eventually(is_up, 120)
            yield Head(settings, launcher)
        finally:
            launcher.close()
            end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """The head and all it started, which share its process group; gently at first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.wait(5)


def test_an_attempt_from_submission_to_stop(head: Head) -> None:
    ray = head.launcher

    def state() -> AttemptState | None:
        told = ray.status("pt-1-a1")
        return None if told is None else told.state

    assert state() is None
    job_uri = head.settings.job_uri("pt-1")
    ray.submit(attempt_launch(job_uri, "pt-1", 1))
    ray.submit(attempt_launch(job_uri, "pt-1", 1))  # an answer that got lost is asked for again
    eventually(lambda: state() is AttemptState.RUNNING)
    eventually(
        lambda: f"arguments -m pipelines.main --job-uri {job_uri} --attempt 1" in (ray.read_log("pt-1-a1") or "")
    )
    (running,) = ray.list_running()
    assert running.submission_id == "pt-1-a1"
    assert running.metadata.items() >= attempt_launch(job_uri, "pt-1", 1).metadata.items()
    assert running.started_at is not None
    ray.stop("pt-1-a1")
    eventually(lambda: state() is AttemptState.STOPPED)
    assert ray.list_running() == []
    ray.stop("pt-1-a1")
    ray.stop("pt-2-a1")
    assert ray.read_log("pt-2-a1") is None


def test_the_size_of_the_cluster(head: Head) -> None:
    capacity = head.launcher.capacity()
    assert capacity is not None
    assert (capacity.num_cpus, capacity.num_gpus) == (2, 0)


def test_what_is_free_of_the_cluster(head: Head) -> None:
    """Ray's monitor writes it down every five seconds."""

    def is_told() -> bool:
        capacity = head.launcher.capacity()
        if capacity is None or len(capacity.nodes) != 1:
            return False
        (node,) = capacity.nodes
        return bool(node.node_id) and replace(node, node_id="") == NodeRoom(2.0, 0.0, 2.0, 0.0)

    eventually(is_told, 30)


def test_without_the_token_there_is_no_answer(head: Head) -> None:
    stranger = RayLauncher(Settings(ray_address=head.settings.ray_address))
    with pytest.raises(LauncherUnavailableError, match="token"):
        stranger.status("pt-1-a1")
    stranger.close()
