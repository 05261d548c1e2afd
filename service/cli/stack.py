"""`electra up` and `electra serve`: the stack on this machine, and the service alone."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from service.cli.console import INTERRUPTED, InputError, JsonOption, stdout
from service.cli.environment import read_settings
from service.local import LocalStack, StackOptions, default_home, read_state

_WATCH_SECONDS = 0.5
_STREAM_GRACE_SECONDS = 3

HomeOption = Annotated[
    Path | None,
    typer.Option(envvar="ELECTRA_HOME", file_okay=False, help="Folder for data and logs.  [default: ~/.electra]"),
]
ServicePortOption = Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")]
MlflowPortOption = Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")]
RayPortOption = Annotated[int, typer.Option(min=0, max=65535, help="Of Ray's dashboard. 0: a free one.")]
CpusOption = Annotated[
    int | None, typer.Option(min=1, help="CPUs that jobs may use.  [default: those of this machine]")
]


def up(
    home: HomeOption = None,
    service_port: ServicePortOption = 0,
    mlflow_port: MlflowPortOption = 0,
    ray_port: RayPortOption = 0,
    num_cpus: CpusOption = None,
    storage_uri: Annotated[
        str | None,
        typer.Option(envvar="ELECTRA_STORAGE_URI", help="Where jobs and corpora lie.  [default: HOME/storage]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run Ray, MLflow and the service on this machine until Ctrl-C."""
    options = StackOptions(
        service_port=service_port,
        mlflow_port=mlflow_port,
        ray_port=ray_port,
        num_cpus=num_cpus,
        storage_uri=storage_uri,
    )
    # With --json standard output is for the addresses alone, in one line when all are ready.
    tell = partial(typer.echo, err=as_json)
    stack = LocalStack(home or default_home(), options, report=tell)
    tell(f"Starting Ray, MLflow and the service in {stack.home} …")
    with run_until_signalled(stack, tell):
        if as_json:
            state = read_state(stack.home)
            assert state is not None, "a stack that runs has written where it is"
            typer.echo(state.model_dump_json())
        else:
            print_addresses(stack)
        watch(stack)


def serve() -> None:
    """Run the service alone, configured by ELECTRA_* variables."""
    import uvicorn

    from service.tracing.setup import TracingNotInstalledError, check_installed

    settings = read_settings()
    try:
        check_installed()
    except TracingNotInstalledError as error:
        raise InputError(str(error)) from error
    uvicorn.run(
        "service.app:create_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        log_config=None,  # service/logs.py configures logging once
        access_log=False,
        server_header=False,
        # Whoever else sent X-Forwarded-For could choose the address that is counted and recorded.
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        # Followers of logs hold their connections open for as long as a job runs.
        timeout_graceful_shutdown=_STREAM_GRACE_SECONDS,
    )


@contextmanager
def run_until_signalled(stack: LocalStack, tell: Callable[[str], None] = typer.echo) -> Iterator[None]:
    """The stack around a block, which Ctrl-C, SIGTERM and a closed terminal end in good order."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    has_started = False
    try:
        stack.start()
        has_started = True
        yield
    except KeyboardInterrupt:
        tell("\nStopping …")
        if not has_started:
            raise typer.Exit(INTERRUPTED) from None
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)  # stopping takes seconds, and half of it is worse than none
        stack.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
        if has_started:
            tell("Ray, MLflow and the service are stopped.")


def print_addresses(stack: LocalStack) -> None:
    """Where everything is, and what to do next."""
    console = stdout()
    rows = (
        ("Service", stack.service_url),
        ("its page", f"{stack.service_url}/ui/"),
        ("its interface", f"{stack.service_url}/docs"),
        ("MLflow", stack.mlflow_url),
        ("Ray dashboard", f"{stack.ray_url}  (token: {stack.ray_token_path})"),
        ("Logs", str(stack.log_directory)),
    )
    console.print()
    for name, value in rows:
        console.print(f"  {name:<14} {value}", markup=False, soft_wrap=True)
    console.print("\nIn another terminal:", markup=False)
    if stack.home != Path("~/.electra").expanduser().absolute():
        console.print(f"  export ELECTRA_HOME={shlex.quote(str(stack.home))}", markup=False, soft_wrap=True)
    for command in ("electra submit tiny --follow", "electra jobs", "electra models"):
        console.print(f"  {command}", markup=False)
    console.print("\nCtrl-C stops everything.", markup=False)


def watch(stack: LocalStack) -> None:
    """Return never; raises `ComponentFailedError` when one of the three ends."""
    while True:
        stack.check_alive()
        time.sleep(_WATCH_SECONDS)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
