"""Ray, MLflow and the service, started and stopped together."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from service.local import components, ports
from service.local.errors import StackError
from service.local.processes import Component, sweep
from service.local.state import (
    StackState,
    lock_home,
    read_left_state,
    read_ports,
    remove_state,
    write_ports,
    write_state,
)

# Ray's longest socket path below its folder, and what the strictest system (macOS) allows in all.
_SOCKET_BELOW = len("/session_2026-11-21_03-57-33_033726_4194304/sockets/plasma_store")
_MAX_SOCKET_PATH = 103


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """How a stack differs from the plain one."""

    service_port: int = 0
    """0 for a free one, as for the other ports."""
    mlflow_port: int = 0
    ray_port: int = 0
    """Of the dashboard, which takes jobs."""
    num_cpus: int | None = None
    """CPUs that Ray may give away; those of the machine when absent."""
    storage_uri: str | None = None
    """Where jobs and corpora lie; `{home}/storage` when absent."""
    start_timeout_seconds: float = 120.0
    """For each component."""
    stop_grace_seconds: float = 10.0
    """For each component, before it is killed."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables for every component and job, such as settings of the service."""


class LocalStack:
    """The embedded stack: a context manager, or `start` and `stop`.

    Everything listens on 127.0.0.1 (Ray's inner ports excepted, which it opens everywhere and guards with the
    token). Data stays in `home` between runs; ports stay the same while the stack lives.
    """

    def __init__(
        self,
        home: Path,
        options: StackOptions | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.home = home.expanduser().absolute()
        self.options = options or StackOptions()
        self.storage_uri = self.options.storage_uri or str(self.home / "storage")
        self.ray_token_path = self.home / "ray.token"
        self.log_directory = self.home / "logs"
        self.stack_id = uuid.uuid4().hex
        self._report = report
        self._components: dict[str, Component] = {}
        self._ports: dict[str, int] = {}
        self._held = ExitStack()

    @property
    def service_url(self) -> str:
        """REST interface; `/docs` shows it."""
        return self._url("service")

    @property
    def mlflow_url(self) -> str:
        """MLflow's pages and REST interface."""
        return self._url("mlflow")

    @property
    def ray_url(self) -> str:
        """Ray's dashboard and jobs interface; asks for the token."""
        return self._url("ray")

    @property
    def component_pids(self) -> dict[str, int]:
        """Leaders of the process groups that run."""
        return {name: one.pid for name, one in self._components.items() if one.pid is not None}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all three and return when each is ready; on any failure nothing is left running.

        Raises:
            StackError: a port is taken, the home is in use, or a component did not come up.
        """
        try:
            self._prepare()
            self._start_component("ray")
            self._start_component("mlflow")  # while Ray starts
            self._wait_for("ray", "mlflow")
            self._start_component("service")
            self._wait_for("service")
            self._write_state()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all three and every job process; safe to call twice."""
        # The service first: it must not take the end of Ray for the end of its jobs. MLflow last: jobs report to it.
        for name in ("service", "ray", "mlflow"):
            component = self._components.pop(name, None)
            if component is not None:
                component.stop(self.options.stop_grace_seconds)
        sweep(self.stack_id, grace_seconds=3.0)
        self._held.close()

    def check_alive(self) -> None:
        """Do nothing while all three run.

        Raises:
            ComponentFailedError: one has ended.
        """
        for component in self._components.values():
            component.check_alive()

    def kill_service(self) -> None:
        """End the service as a power cut would."""
        self._components.pop("service").kill()

    def start_service(self) -> None:
        """Start the service again, on the same port and the same data.

        Raises:
            ComponentFailedError: it did not come up.
        """
        self._start_component("service")
        self._wait_for("service")
        self._write_state()

    def _prepare(self) -> None:
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.log_directory.mkdir(exist_ok=True)
            self._held.enter_context(lock_home(self.home))
            for log in self.log_directory.glob("*.log"):
                log.replace(log.with_suffix(".log.1"))  # one run each, and the one before for comparison
        except OSError as error:
            raise StackError(
                f"the folder {self.home} cannot be used: {error.strerror}; name another with --home"
            ) from error
        left = read_left_state(self.home)
        if left is not None:
            # We hold the lock, so its supervisor died without stopping them.
            if count := sweep(left.stack_id, grace_seconds=3.0):
                self._report(f"stopped {count} processes that an earlier stack left behind")
            remove_state(self.home)
        self._held.callback(remove_state, self.home)
        self._ports = self._claim_ports()
        self._temporary = self._temporary_directory()

    def _claim_ports(self) -> dict[str, int]:
        options, taken, last = self.options, set[int](), read_ports(self.home)
        wanted = (
            ("service", options.service_port, "the service", "--service-port"),
            ("mlflow", options.mlflow_port, "MLflow", "--mlflow-port"),
            ("ray", options.ray_port, "Ray's dashboard", "--ray-port"),
            ("ray_client", 0, "Ray's client server", "--ray-port"),
        )
        # Those that were asked for come first, so that none is given away as a free one.
        claimed = {name: ports.claim_port(port, title, option, taken) for name, port, title, option in wanted if port}
        for name, port, title, option in wanted:
            if not port:
                again = last.get(name, 0)
                is_again = again and again not in taken and ports.is_free(again)
                claimed[name] = ports.claim_port(again if is_again else 0, title, option, taken)
        write_ports(self.home, claimed)
        return claimed

    def _temporary_directory(self) -> Path:
        # Sockets need a short path, which a home need not have; Ray opens its own folder to all, so that the one
        # around it must be closed.
        for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes an unguessable folder of mode 700
            around = Path(tempfile.mkdtemp(prefix="electra-", dir=parent))
            self._held.callback(shutil.rmtree, around, ignore_errors=True)
            if len(str(around / "ray")) + _SOCKET_BELOW <= _MAX_SOCKET_PATH:
                return around
        raise StackError(
            f"the path of the temporary folder is too long for Ray's sockets: {around}; set TMPDIR to a shorter one"
        )

    def _component(self, name: str) -> Component:
        shared = components.shared_environment(
            self.stack_id, mlflow_url=self.mlflow_url, storage_uri=self.storage_uri, token_path=self.ray_token_path
        )
        # What killed processes leave in their temporary folder goes with the stack.
        shared |= {"TMPDIR": str(self._temporary), **self.options.environment}
        if name == "ray":
            plan = components.ray(
                shared,
                directory=self._temporary / "ray",
                port=self._ports["ray"],
                client_port=self._ports["ray_client"],
                num_cpus=self.options.num_cpus,
                token_path=self.ray_token_path,
            )
        elif name == "mlflow":
            plan = components.mlflow(shared, home=self.home, port=self._ports["mlflow"])
        else:
            plan = components.service(
                shared,
                home=self.home,
                port=self._ports["service"],
                ray_url=self.ray_url,
                mlflow_url=self.mlflow_url,
                token_path=self.ray_token_path,
            )
        # The home as working directory: in a checkout, `python -m` would prefer its folders to what is installed.
        return Component(name, plan, self.home, self.log_directory / f"{name}.log")

    def _start_component(self, name: str) -> None:
        component = self._component(name)
        component.start()
        self._components[name] = component

    def _wait_for(self, *names: str) -> None:
        started = time.monotonic()
        for name in names:
            # One that has ended may be what the other waits for.
            self._components[name].wait_until_ready(self.options.start_timeout_seconds, self.check_alive)
            self._report(f"{self._components[name].plan.title} is ready after {time.monotonic() - started:.1f} s")

    def _write_state(self) -> None:
        state = StackState(
            stack_id=self.stack_id,
            pid=os.getpid(),
            started_at=datetime.now(UTC),
            service_url=self.service_url,
            mlflow_url=self.mlflow_url,
            ray_url=self.ray_url,
            ray_token_path=str(self.ray_token_path),
            storage_uri=self.storage_uri,
            component_pids=self.component_pids,
        )
        write_state(self.home, state)

    def _url(self, name: str) -> str:
        if name not in self._ports:
            raise StackError("the stack has not been started")
        return f"http://127.0.0.1:{self._ports[name]}"
