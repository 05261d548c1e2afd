from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.local import (
    AlreadyRunningError,
    ComponentFailedError,
    LocalStack,
    PortInUseError,
    StackOptions,
    read_state,
)
from service.local.components import write_token
from service.local.ports import claim_port
from service.local.processes import STACK_ID_VARIABLE, Component, Plan, marked_processes, sweep
from service.local.state import StackState, lock_home, read_ports, write_ports, write_state


def component(tmp_path: Path, code: str, probe: Callable[[], str | None], mark: str = "m") -> Component:
    environment = {**os.environ, STACK_ID_VARIABLE: mark}
    plan = Plan("The thing", (sys.executable, "-c", code), environment, probe)
    return Component("thing", plan, tmp_path, tmp_path / "thing.log")


def state_of(pid: int) -> StackState:
    return StackState(
        stack_id="s",
        pid=pid,
        started_at=datetime.now(UTC),
        service_url="http://127.0.0.1:1",
        mlflow_url="http://127.0.0.1:2",
        ray_url="http://127.0.0.1:3",
        ray_token_path="/t",
        storage_uri="/s",
    )


def test_a_port_in_use_is_named_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"port {port} for MLflow is in use.*--mlflow-port"):
            claim_port(port, "MLflow", "--mlflow-port", set())


def test_no_port_is_given_twice() -> None:
    taken: set[int] = set()
    ports = [claim_port(0, "a", "--a", taken) for _ in range(20)]
    assert len(set(ports)) == 20
    with pytest.raises(PortInUseError):
        claim_port(ports[0], "a", "--a", taken)


def test_a_stack_whose_port_is_taken_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        stack = LocalStack(tmp_path, StackOptions(service_port=other.getsockname()[1]))
        with pytest.raises(PortInUseError, match="--service-port"):
            stack.start()
    assert stack.component_pids == {}
    lock_home(tmp_path).close()  # it was let go


def test_the_ports_of_the_last_stack_are_taken_again(tmp_path: Path) -> None:
    write_ports(tmp_path, {"service": 20_001, "mlflow": 20_002})
    assert read_ports(tmp_path) == {"service": 20_001, "mlflow": 20_002}
    (tmp_path / "ports.json").write_text('{"service": "x"}')
    assert read_ports(tmp_path) == {}


def test_a_home_holds_one_stack(tmp_path: Path) -> None:
    write_state(tmp_path, state_of(os.getpid()))
    with lock_home(tmp_path), pytest.raises(AlreadyRunningError, match=r"http://127\.0\.0\.1:1"):
        LocalStack(tmp_path).start()
    assert read_state(tmp_path) is not None  # the other's record is not ours to remove


def test_the_record_of_a_dead_stack_counts_for_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    write_state(tmp_path, state_of(ended.pid))
    assert read_state(tmp_path) is None
    (tmp_path / "stack.json").write_text("{")
    assert read_state(tmp_path) is None


def test_the_token_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "ray.token"
    token = write_token(path)
    path.chmod(0o644)
    assert write_token(path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) == 64


def test_a_component_that_ends_while_starting_shows_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "thing.log").write_text("of an earlier run\n")
    thing = component(tmp_path, "print('no such table'); raise SystemExit(3)", lambda: "no answer")
    thing.start()
    with pytest.raises(ComponentFailedError, match="The thing stopped while starting, with exit code 3") as caught:
        thing.wait_until_ready(20)
    assert "no such table" in str(caught.value)
    assert "earlier run" not in str(caught.value)
    thing.stop(1)


def test_a_component_that_is_late_says_what_was_waited_for(tmp_path: Path) -> None:
    thing = component(tmp_path, "import time; time.sleep(60)", lambda: "http://x does not answer")
    thing.start()
    with pytest.raises(ComponentFailedError, match="not ready within 0 s: http://x does not answer"):
        thing.wait_until_ready(0.2)
    thing.stop(5)
    assert thing.pid is None


def test_a_component_that_will_not_stop_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    log = tmp_path / "thing.log"
    thing = component(tmp_path, code, lambda: None if "deaf" in log.read_text() else "still hears")
    thing.start()
    thing.wait_until_ready(20)
    thing.stop(0.2)
    assert thing.pid is None


def test_the_sweep_finds_those_who_left_the_group(tmp_path: Path) -> None:
    child = "import time; time.sleep(60)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)"
    mark = f"test-{os.getpid()}"
    thing = component(
        tmp_path, code, lambda: None if thing.process and thing.process.poll() is not None else "runs", mark
    )
    thing.start()
    thing.wait_until_ready(20)
    thing.stop(1)
    assert len(marked_processes(mark)) == 1
    assert sweep(mark, grace_seconds=5) == 1
    assert marked_processes(mark) == []


def test_a_component_that_ends_while_another_starts_is_not_waited_for(tmp_path: Path) -> None:
    """The service is not ready without Ray, and would never be."""
    stack = LocalStack(tmp_path / "home", StackOptions(start_timeout_seconds=20))
    ended = component(tmp_path, "raise SystemExit(3)", lambda: None)
    waits = component(tmp_path, "import time; time.sleep(60)", lambda: "not yet")
    stack._components = {"ray": ended, "service": waits}
    for one in stack._components.values():
        one.start()
    try:
        with pytest.raises(ComponentFailedError, match="stopped by itself, with exit code 3"):
            stack._wait_for("service")
    finally:
        waits.kill()
