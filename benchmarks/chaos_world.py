"""What faults befall: two replicas of the service, PostgreSQL, MLflow and a Ray head, each in a process group."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from own_postgres import OwnPostgres

from service.local import components, ports
from service.local.errors import ComponentFailedError
from service.local.processes import Component, Plan, marked_processes, sweep

NUM_REPLICAS = 2
START_TIMEOUT_SECONDS = 180.0
STOP_SECONDS = 30.0
NUM_STARTS = 3
SAMPLE_SECONDS = 0.2
_DRIVER = re.compile(r"-m pipelines\.main --job-uri \S*/jobs/(\S+) --attempt (\d+)")
_WORKER = "ray::RayTrainWorker"
SERVICE_SETTINGS = {
    "ELECTRA_RECONCILE_INTERVAL_SECONDS": "0.5",
    "ELECTRA_LEASE_SECONDS": "5",
    # As many as there are faults: what is to be seen is whether a job comes to its end, not when it is given up.
    "ELECTRA_MAX_ATTEMPTS": "100",
    "ELECTRA_RETRY_DELAY_SECONDS": "0",
    "ELECTRA_HEARTBEAT_TIMEOUT_SECONDS": "90",
    "ELECTRA_STARTING_TIMEOUT_SECONDS": "240",
    "ELECTRA_LOG_JSON": "true",
    "RAY_worker_niceness": "0",
}


@dataclass(frozen=True)
class Driver:
    """A process of ours that works for an attempt."""

    pid: int
    started: int
    """In clock ticks since boot: with the pid it names one process."""
    job_id: str
    attempt: int


@dataclass
class Lifetime:
    """When a driver was seen, by the clock of the machine (seconds since 1970)."""

    driver: Driver
    first_seen: float
    last_seen: float


class World:
    """All of it, as a context. Nothing of it is left at the end but `home`."""

    def __init__(self, home: Path, num_cpus: int, code: Path | None = None) -> None:
        """Args:
        home: folder for data and logs.
        num_cpus: which Ray may give away.
        code: checkout that replicas and Ray are started from; can be changed for what is started later. This one
            where absent.
        """
        self.home = home
        self.code = code
        self.storage = home / "storage"
        self.stack_id = uuid.uuid4().hex
        self.lifetimes: dict[tuple[int, int], Lifetime] = {}
        self._num_cpus = num_cpus
        self._logs = home / "logs"
        self._temporary = Path(tempfile.mkdtemp(prefix="electra-chaos-"))
        self._token = home / "ray.token"
        self.database = OwnPostgres()
        taken: set[int] = set()
        names = ("mlflow", "ray", "ray_client", *(f"service-{index}" for index in range(NUM_REPLICAS)))
        self._ports = {name: ports.claim_port(0, name, "", taken) for name in names}
        self._running: dict[str, Component] = {}
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._observe, name="observer", daemon=True)

    def __enter__(self) -> Self:
        for folder in (self.home, self.storage, self._logs):
            folder.mkdir(parents=True, exist_ok=True)
        self._watch.start()
        try:
            self.database.start()
            self.start("ray")
            self.start("mlflow")
            for index in range(NUM_REPLICAS):
                self.start(f"service-{index}", is_awaited=False)
            for index in range(NUM_REPLICAS):
                self.wait_until_ready(f"service-{index}")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def replicas(self) -> tuple[str, ...]:
        """Names of the replicas."""
        return tuple(f"service-{index}" for index in range(NUM_REPLICAS))

    @property
    def mlflow_url(self) -> str:
        """Where MLflow answers."""
        return self.url("mlflow")

    def url(self, name: str) -> str:
        """Where a component answers."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def is_running(self, name: str) -> bool:
        """Whether a component has been started, and not killed since."""
        return name in self._running

    def start(self, name: str, *, is_awaited: bool = True) -> None:
        """Start a component, on the port it always has."""
        component = Component(name, self._plan(name), self.home, self._logs / f"{name}.log")
        component.start()
        self._running[name] = component
        if is_awaited:
            self.wait_until_ready(name)

    def wait_until_ready(self, name: str) -> None:
        """Return when a component answers as it should; one that ends while it starts is started again.

        Ray gives itself 30 s for some of its steps, which is too little on a machine that does other things too.

        Raises:
            ComponentFailedError: it ended `NUM_STARTS` times, or is not ready within `START_TIMEOUT_SECONDS`.
        """
        for left in reversed(range(NUM_STARTS)):
            try:
                self._running[name].wait_until_ready(START_TIMEOUT_SECONDS)
            except ComponentFailedError:
                if not left or self._running[name].process.poll() is None:
                    raise
                self.kill(name)
                self.start(name, is_awaited=False)
            else:
                return

    def missing(self, name: str) -> str | None:
        """What a component lacks to be ready; None when it is."""
        return self._running[name].plan.probe() if name in self._running else "it does not run"

    def stop(self, name: str) -> None:
        """SIGTERM, as an upgrade does it; SIGKILL to what has not ended after `STOP_SECONDS`."""
        self._running.pop(name).stop(STOP_SECONDS)

    def kill(self, name: str) -> None:
        """SIGKILL to a component's whole process group. Of Ray that is the head, and no process of any job."""
        self._running.pop(name).kill()

    def drivers(self) -> list[Driver]:
        """The drivers that run now."""
        return list(_drivers(self.stack_id))

    def workers(self) -> list[int]:
        """The training workers that run now."""
        return [pid for pid in marked_processes(self.stack_id) if _command(pid).startswith(_WORKER)]

    def _plan(self, name: str) -> Plan:
        shared = components.shared_environment(
            self.stack_id, mlflow_url=self.mlflow_url, storage_uri=str(self.storage), token_path=self._token
        )
        shared |= {"TMPDIR": str(self._temporary), **SERVICE_SETTINGS}
        if self.code is not None:
            shared["PYTHONPATH"] = str(self.code)  # before what is installed
        if name == "ray":
            return components.ray(
                shared,
                directory=self._temporary / "ray",
                port=self._ports["ray"],
                client_port=self._ports["ray_client"],
                num_cpus=self._num_cpus,
                token_path=self._token,
            )
        if name == "mlflow":
            return components.mlflow(shared, home=self.home, port=self._ports["mlflow"])
        plan = components.service(
            shared,
            home=self.home,
            port=self._ports[name],
            ray_url=self.url("ray"),
            mlflow_url=self.mlflow_url,
            token_path=self._token,
        )
        more = {"ELECTRA_DATABASE_URL": self.database.url, "ELECTRA_MAX_RUNNING_JOBS": str(self._num_cpus)}
        return replace(plan, environment={**plan.environment, **more})

    def _observe(self) -> None:
        """Note which drivers live: what a process that is killed cannot say of itself."""
        while not self._is_over.wait(SAMPLE_SECONDS):
            now = time.time()
            for driver in _drivers(self.stack_id):
                seen = self.lifetimes.setdefault((driver.pid, driver.started), Lifetime(driver, now, now))
                seen.last_seen = time.time()

    def _end(self) -> None:
        self._is_over.set()
        for component in self._running.values():
            component.stop(grace_seconds=5.0)
        self._running.clear()
        sweep(self.stack_id, grace_seconds=2.0)
        self.database.remove()
        shutil.rmtree(self._temporary, ignore_errors=True)


def kill(pid: int) -> bool:
    """SIGKILL to one process; whether there was one."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def _drivers(stack_id: str) -> Iterator[Driver]:
    mark = f"STACK_ID={stack_id}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found = _DRIVER.search(command)
            # Ray runs the command in a shell, whose own command line has it too.
            if found is None or " -c " in command or mark not in (folder / "environ").read_bytes():
                continue
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if fields[0] not in "ZX":  # a dead one that nobody has asked for writes nothing any more
            yield Driver(int(folder.name), int(fields[19]), found[1], int(found[2]))


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
