"""What each component of the stack is told: its command line, its environment, and the question that shows it ready."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from service.local.processes import STACK_ID_VARIABLE, Plan

# Settings of other clusters, servers and runs, which would lead our components and jobs to them.
_NOT_INHERITED = (
    "MLFLOW_EXPERIMENT_ID",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_REGISTRY_URI",
    "MLFLOW_RUN_ID",
    "RAY_ADDRESS",
    "RAY_AUTH_TOKEN",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",
)
_PROBE_TIMEOUT_SECONDS = 5.0


def write_token(path: Path) -> str:
    """The cluster's token: made once per home, readable by its owner alone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        path.chmod(0o600)
        return path.read_text(encoding="ascii").strip()
    token = secrets.token_hex(32)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token)  # no line end: Ray reads the file as it is
    return token


def shared_environment(stack_id: str, *, mlflow_url: str, storage_uri: str, token_path: Path) -> dict[str, str]:
    """What every component gets, and through Ray every job."""
    environment = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
    programs = str(Path(sys.executable).parent)  # not resolved: the virtual environment's own folder
    no_proxy = ",".join(filter(None, [os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), "127.0.0.1,localhost"]))
    environment |= {
        STACK_ID_VARIABLE: stack_id,
        # Ray's workers rename themselves over their environment, and with it over the mark, unless told not to.
        "SPT_NOENV": "1",
        # `python` in a job's entrypoint is the one that runs us.
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", os.defpath)]),
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "ELECTRA_STORAGE_URI": storage_uri,
        "MLFLOW_TRACKING_URI": mlflow_url,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_path),
        "RAY_USAGE_STATS_ENABLED": "0",
        # There are no replicas to hand over: draining only delays the stop, by 30 s.
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        # Between two looks of the controller at its workers, 2 s by default: the end of a training is seen as much
        # later, and every look is work for them. What 0.2 s cost was not told apart from the noise of the machine.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    }
    return environment


def ray(
    shared: Mapping[str, str],
    *,
    directory: Path,
    port: int,
    client_port: int,
    num_cpus: int | None,
    token_path: Path,
) -> Plan:
    """A head that runs in the foreground, on ports nobody else has."""
    token = write_token(token_path)
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += ["--node-ip-address=127.0.0.1", "--port=0", "--dashboard-agent-listen-port=0"]
    # Random ports for workers too: the default range would collide with ports that were given.
    command += ["--min-worker-port=0", "--max-worker-port=0", f"--ray-client-server-port={client_port}"]
    command += ["--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={port}"]
    command += [f"--temp-dir={directory}", "--disable-usage-stats", "--log-color=false"]
    if num_cpus is not None:
        command.append(f"--num-cpus={num_cpus}")
    return Plan("Ray", tuple(command), shared, _ray_probe(f"http://127.0.0.1:{port}", token))


def mlflow(shared: Mapping[str, str], *, home: Path, port: int) -> Plan:
    """A server of one worker: tracking and registry in SQLite, artifacts in a folder, both in the home."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{home / 'mlflow.sqlite'}"]
    command += ["--artifacts-destination", str(home / "mlflow-artifacts")]
    # By default private addresses of the network pass too.
    command += ["--allowed-hosts", "localhost,127.0.0.1,localhost:*,127.0.0.1:*"]
    environment = {**shared, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return Plan("MLflow", tuple(command), environment, _http_probe(f"http://127.0.0.1:{port}/health"))


def service(
    shared: Mapping[str, str], *, home: Path, port: int, ray_url: str, mlflow_url: str, token_path: Path
) -> Plan:
    """The service alone, told by its environment where the others are."""
    environment = {
        **shared,
        "ELECTRA_HOME": str(home),
        "ELECTRA_HOST": "127.0.0.1",
        "ELECTRA_PORT": str(port),
        "ELECTRA_RAY_ADDRESS": ray_url,
        "ELECTRA_RAY_URL": ray_url,
        "ELECTRA_RAY_TOKEN_PATH": str(token_path),
        "ELECTRA_MLFLOW_URL": mlflow_url,
        "ELECTRA_MLFLOW_TRACKING_URI": mlflow_url,
    }
    command = (sys.executable, "-m", "service.cli", "serve")
    return Plan("The service", command, environment, _http_probe(f"http://127.0.0.1:{port}/readyz"))


def _ray_probe(url: str, token: str) -> Callable[[], str | None]:
    """Ready when the dashboard lists a node that is alive: only then has a job somewhere to run."""
    headers = {"Authorization": f"Bearer {token}"}

    def probe() -> str | None:
        answer = _ask(f"{url}/nodes?view=summary", headers)
        if isinstance(answer, str):
            return answer
        nodes = answer.json().get("data", {}).get("summary", [])
        is_alive = any(node.get("raylet", {}).get("state") == "ALIVE" for node in nodes)
        return None if is_alive else "the cluster has no node yet"

    return probe


def _http_probe(url: str) -> Callable[[], str | None]:
    """Ready when the address answers with success."""

    def probe() -> str | None:
        answer = _ask(url, {})
        return answer if isinstance(answer, str) else None

    return probe


def _ask(url: str, headers: dict[str, str]) -> httpx.Response | str:
    """The answer, or one line that says why there is none to use."""
    try:
        # trust_env=False: a proxy of the environment has no way to our loopback address.
        answer = httpx.get(url, headers=headers, timeout=_PROBE_TIMEOUT_SECONDS, trust_env=False)
    except httpx.HTTPError as error:
        return f"{url} does not answer ({type(error).__name__})"
    if answer.is_success:
        return answer
    return f"{url} answers {answer.status_code}{_detail(answer)}"


def _detail(answer: httpx.Response) -> str:
    try:
        document: Any = answer.json()
    except ValueError:
        return ""
    detail = document.get("detail") if isinstance(document, dict) else None
    return f": {detail}" if detail else ""
