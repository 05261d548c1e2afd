"""`electra demo`: one job from nothing to a registered model, over the same interface as any other."""

from __future__ import annotations

import os
import shlex
import time
from typing import Annotated

import typer

from pipelines.specs.presets import PRESETS
from service.cli.console import FAILED, stdout
from service.cli.follow import follow_to_the_end
from service.cli.inputs import SetOption
from service.cli.render import figures_table, marked_sentence, sentence_legend
from service.cli.stack import HomeOption, print_addresses, run_until_signalled, watch
from service.client import ElectraClient
from service.local import LocalStack, StackOptions, default_home
from service.schemas import JobPublic


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
    with run_until_signalled(stack):
        typer.echo(f"[2/3] POST {stack.service_url}/v1/jobs: the preset `tiny`, {workers} data-parallel workers")
        with ElectraClient(stack.service_url) as client:
            job = client.submit({"kind": "pretrain", "preset": "tiny", "name": "electra-demo"}, overrides or ())
            typer.echo(f"      {job.job_id}: text is the documentation of the Python packages installed here")
            # It reads how the job ends as anyone would: from the service.
            job = follow_to_the_end(client, job.job_id, show_outcome=False)
        typer.echo("[3/3] Done.\n")
        _show_result(job, stack)
        typer.echo(f"\n{(time.monotonic() - started) / 60:.1f} minutes in all.")
        if keep_running:
            print_addresses(stack)
            watch(stack)


def _show_result(job: JobPublic, stack: LocalStack) -> None:
    result = job.result
    if result is None:
        typer.echo(
            f"The job succeeded, but its result is not known: see {stack.storage_uri}/jobs/{job.job_id}", err=True
        )
        raise typer.Exit(FAILED)
    console = stdout()
    console.print(figures_table(result))
    if result.example:
        console.print("\nA held-out sentence, some tokens replaced by the generator, as the discriminator sees it:\n")
        console.print(marked_sentence(result.example))
        console.print(sentence_legend(result.example), style="dim", markup=False)
    console.print()
    for model in result.models:
        console.print(f"{model.network:<14} {model.name} version {model.version} (@{model.alias})", markup=False)
        console.print(f"{'':<14} {model.export_uri}", markup=False, soft_wrap=True)
    if job.links.mlflow:
        console.print(f"{'MLflow run':<14} {job.links.mlflow}  (while the stack runs)", markup=False, soft_wrap=True)
    console.print("\nTo try next:", markup=False)
    for command, meaning in _next_commands(job, stack):
        console.print(f"  {command}\n      {meaning}", markup=False, soft_wrap=True)


def _next_commands(job: JobPublic, stack: LocalStack) -> list[tuple[str, str]]:
    assert job.result is not None
    commands = [
        (f"electra up --home {shlex.quote(str(stack.home))}", "the same stack again: MLflow's pages, the job's record"),
        (
            "electra submit tiny --set training.num_train_steps=12000 --follow",
            "twice as long, on the same prepared text",
        ),
        ("electra plan small", "what the paper's ELECTRA-Small would cost"),
    ]
    discriminator = next((model for model in job.result.models if model.network == "discriminator"), None)
    if discriminator is not None:
        code = f"from transformers import AutoModel; print(AutoModel.from_pretrained({discriminator.export_uri!r}))"
        commands.insert(1, (f"python -c {shlex.quote(code)}", "the encoder, in Transformers"))
    return commands
