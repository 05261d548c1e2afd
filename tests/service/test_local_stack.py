"""The whole embedded stack, for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from service.client import ElectraClient
from service.local import LocalStack, StackOptions, read_state
from service.local.processes import marked_processes

pytestmark = pytest.mark.slow


def test_all_three_answer_survive_a_killed_service_and_leave_nothing(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path / "home", StackOptions(num_cpus=2))
    with stack, ElectraClient(stack.service_url) as client:
        token = stack.ray_token_path.read_text()
        assert httpx.get(f"{stack.ray_url}/api/version").status_code == 401
        jobs = httpx.get(f"{stack.ray_url}/api/jobs/", headers={"Authorization": f"Bearer {token}"})
        assert (jobs.status_code, jobs.json()) == (200, [])
        assert httpx.get(f"{stack.mlflow_url}/health").text == "OK"
        assert httpx.get(f"{stack.mlflow_url}/health", headers={"Host": "evil.example"}).text
        assert httpx.get(stack.mlflow_url, headers={"Host": "evil.example"}).status_code == 403
        assert client.ready()
        state = read_state(stack.home)
        assert state is not None
        assert state.service_url == stack.service_url

        stack.kill_service()
        assert not client.ready()
        stack.start_service()
        assert client.ready()
        assert stack.service_url == state.service_url
    assert marked_processes(stack.stack_id) == []
    assert read_state(stack.home) is None


def test_a_signal_stops_up_and_all_it_started(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ELECTRA_")}
    command = [sys.executable, "-m", "service.cli", "up", "--home", str(home)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True) as up:
        deadline = time.monotonic() + 180
        while (state := read_state(home)) is None:
            assert up.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        shown = {**environment, "ELECTRA_HOME": str(home)}
        listing = subprocess.run(
            [sys.executable, "-m", "service.cli", "jobs", "--json"],
            env=shown,
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert json.loads(listing.stdout)["items"] == []
        os.killpg(up.pid, signal.SIGTERM)
        output, _ = up.communicate(timeout=60)
    assert state.mlflow_url in output
    assert "are stopped" in output
    assert up.returncode == 0
    assert marked_processes(state.stack_id) == []
