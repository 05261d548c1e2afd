"""`electra demo`: one job from nothing to a registered model, over the same interface as any other."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from pipelines.specs.documents import JobResult
from pipelines.specs.presets import PRESETS
from service.cli.console import FAILED, INTERRUPTED, stdout
from service.cli.follow import follow_job, make_view, print_failure
from service.cli.inputs import SetOption
from service.cli.render import figures_table, marked_sentence, sentence_legend
from service.cli.stack import HomeOption, print_addresses, run_until_signalled, watch
from service.client import ClientError, ElectraClient
from service.http.schemas import JobPublic
from service.local import LocalStack, StackOptions, default_home
from service.states import JobState

JOB_NAME = "electra-demo"
LOG_LINES = 30


def demo(
    home: HomeOption = None,
    overrides: SetOption = None,
    keep_running: Annotated[bool, typer.Option(help="Leave the stack running at the end, until Ctrl-C.")] = False,
) -> None:
    """Pretrain a tiny encoder on the documentation installed on this machine, and show what it has learned."""
    started = time.monotonic()
    workers = PRESETS["tiny"]().compute.num_workers
    # Two workers must fit on a machine of one core too: slower, but not waiting for ever.
    options = StackOptions(num_cpus=max(os.cpu_count() or 1, workers))
    stack = LocalStack(home or default_home(), options, report=typer.echo)
    typer.echo(f"[1/3] Starting Ray, MLflow and the service in {stack.home} …")
    job = None
    with run_until_signalled(stack), ElectraClient(stack.service_url) as client:
        typer.echo(f"[2/3] POST {stack.service_url}/v1/jobs: the preset `tiny`, {workers} data-parallel workers")
        job_id = _start_or_go_on(client, overrides or [])
        with make_view(stdout()) as view:
            job = follow_job(client, job_id, view)
        if job.state is not JobState.SUCCEEDED or job.result is None:
            _show_failure(job, client)
            raise typer.Exit(FAILED)
        typer.echo("[3/3] Done.\n")
        _show_result(job, job.result, stack)
        typer.echo(f"\n{(time.monotonic() - started) / 60:.1f} minutes in all.")
        if keep_running:
            print_addresses(stack)
            watch(stack)
    if job is None:
        typer.echo("The same command goes on where this one was interrupted.", err=True)
        raise typer.Exit(INTERRUPTED)


def _start_or_go_on(client: ElectraClient, overrides: list[str]) -> str:
    """A new job, or the one that an earlier demonstration was interrupted in: it resumes from its last checkpoint."""
    document = {"kind": "pretrain", "preset": "tiny", "name": JOB_NAME}
    wanted = client.plan(document, overrides).spec
    for earlier in client.iter_jobs([JobState.QUEUED, JobState.STARTING, JobState.RUNNING], name=JOB_NAME):
        if client.job(earlier.job_id).spec == wanted:
            typer.echo(f"      {earlier.job_id}: going on with the job that was interrupted")
            return earlier.job_id
        client.cancel(earlier.job_id)  # it would only be in the way
    job = client.submit(document, overrides)
    typer.echo(f"      {job.job_id}: its text is the documentation of the Python packages installed here")
    return job.job_id


def _show_failure(job: JobPublic, client: ElectraClient) -> None:
    """With the end of the log: the stack that could be asked for it is about to stop."""
    print_failure(job)
    try:
        log = client.logs(job.job_id)
    except ClientError as error:
        typer.echo(f"(its log cannot be read: {error})", err=True)
        return
    typer.echo("The end of its log:", err=True)
    typer.echo("\n".join(log.splitlines()[-LOG_LINES:]), err=True)


def _show_result(job: JobPublic, result: JobResult, stack: LocalStack) -> None:
    console = stdout()
    console.print(figures_table(result))
    if result.example:
        console.print("\nHeld-out text with replaced tokens, as the discriminator sees it (its best of 64 passages):\n")
        console.print(marked_sentence(result.example))
        console.print(sentence_legend(result.example), style="dim", markup=False)
    console.print()
    for model in result.models:
        console.print(f"{model.network:<14} {model.name} version {model.version} (@{model.alias})", markup=False)
        console.print(f"{'':<14} {model.export_uri}", markup=False, soft_wrap=True)
    if job.links.mlflow:
        console.print(f"{'MLflow run':<14} {job.links.mlflow}  (while the stack runs)", markup=False, soft_wrap=True)
    console.print("\nTo try next:", markup=False)
    for command, meaning in _next_commands(result, stack):
        console.print(f"  {command}\n      {meaning}", markup=False, soft_wrap=True)


def _next_commands(result: JobResult, stack: LocalStack) -> list[tuple[str, str]]:
    home = shlex.quote(str(stack.home))
    commands = []
    if shutil.which("electra") is None:
        programs = Path(sys.executable).parent
        commands.append(
            (f"source {shlex.quote(str(programs / 'activate'))}", "puts electra and its Python on the path")
        )
    commands += [
        (f"electra up --home {home}", "the same stack again, at the same addresses: MLflow's pages, the job's record"),
        (f"export ELECTRA_HOME={home}; electra submit tiny --follow", "in another terminal: a job, its text prepared"),
        ("electra plan small", "what the paper's ELECTRA-Small would cost"),
    ]
    main = next((model for model in result.models if model.network != "generator"), None)
    if main is not None:
        text, told = "a sentence of yours", "which of its words the model takes for replaced"
        if main.network == "encoder":
            text, told = "a [MASK] of yours", "what the model puts in place of the mask"
        model = shlex.quote(f"{main.name}@{main.alias}")
        asking = f"ELECTRA_HOME={home} electra predict {model} --text '{text}'"
        commands.append((asking, f"while the stack runs: {told}"))
        code = f"from transformers import AutoModel; print(AutoModel.from_pretrained('{main.export_uri}'))"
        commands.append((f'python -c "{code}"', "the encoder, in Transformers"))
    return commands
