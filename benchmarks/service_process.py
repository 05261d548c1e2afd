"""The service, or a contender of it, in a process of its own on a real port."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from service.local.ports import claim_port
from service.local.processes import Component, Plan

ROOT = Path(__file__).parents[1]
START_SECONDS = 300.0


@contextmanager
def service(home: Path, database_url: str, *, code: Path = ROOT, **settings: object) -> Iterator[tuple[str, Component]]:
    """`electra serve` of a checkout with nothing but these settings, by their names in `Settings`; its URL and its
    process. It is ready though there is no Ray.
    """
    given = {"home": home, "database_url": database_url, "ready_without_ray": True, "log_json": True, **settings}
    # Nothing answers there, and says so at once.
    given = {"ray_address": f"http://127.0.0.1:{claim_port(0, 'nothing', '', set())}", **given}
    environment = {f"ELECTRA_{name.upper()}": str(value) for name, value in given.items()}
    environment["PYTHONPATH"] = str(code)
    command = [sys.executable, "-m", "service.cli", "serve"]
    with server("service", command, environment, home, "ELECTRA_PORT", "/readyz") as running:
        yield running


@contextmanager
def server(
    name: str, command: list[str], environment: Mapping[str, str], home: Path, port_variable: str, ready_path: str
) -> Iterator[tuple[str, Component]]:
    """A program that listens on the port it is told; its URL and its process, once a path of it answers with success.

    Args:
        name: of its log in `home`.
        command: its own.
        environment: beside what this process has, our own settings left out.
        home: working directory.
        port_variable: of the environment, which names the port.
        ready_path: asked until it answers.
    """
    home.mkdir(parents=True, exist_ok=True)
    port = claim_port(0, name, "", set())
    url = f"http://127.0.0.1:{port}"
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("ELECTRA_")}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
    every = {**inherited, "PYTHONPATH": paths, **environment, port_variable: str(port)}
    component = Component(name, Plan(name, command, every, _probe(url + ready_path)), home, home / f"{name}.log")
    component.start()
    try:
        component.wait_until_ready(START_SECONDS)
        yield url, component
    finally:
        component.stop(10.0)


def _probe(url: str) -> Callable[[], str | None]:
    def probe() -> str | None:
        try:
            answer = httpx.get(url, timeout=5.0, trust_env=False)
        except httpx.HTTPError as error:
            return f"{url} does not answer ({type(error).__name__})"
        return None if answer.is_success else f"{url} answers {answer.status_code}: {answer.text[:300]}"

    return probe
