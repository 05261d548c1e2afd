"""All commands, by name."""

from __future__ import annotations

import typer

from service.cli import (
    access,
    again,
    convert,
    demo,
    doctor,
    edit,
    events,
    joblogs,
    jobs,
    migrate,
    model_commands,
    models,
    plan,
    predict,
    queue,
    shelf,
    stack,
    submit,
    trials,
    webhooks,
    wishes,
)
from service.cli.console import ReadableErrors

app = typer.Typer(
    cls=ReadableErrors,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Pretrain text encoders with replaced-token detection.\n\n"
    "Exit codes: 0 done, 1 a job or a component failed, 2 the input is wrong, 3 the service cannot be reached, "
    "4 the service refused, 130 interrupted.",
)
app.command()(demo.demo)
app.command()(stack.up)
app.command()(submit.submit)
app.command()(plan.plan)
app.command()(convert.convert)
app.command("jobs")(jobs.list_jobs)
app.command()(jobs.show)
app.command()(trials.trials)
app.command()(joblogs.logs)
app.command()(events.events)
app.command()(jobs.cancel)
app.command()(wishes.kill)
app.command()(wishes.pause)
app.command()(wishes.resume)
app.command()(again.retry)
app.command()(again.clone)
app.command()(edit.edit)
app.command()(wishes.archive)
app.command()(wishes.unarchive)
registry = typer.Typer(
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Registered models. Without a command: what MLflow has, asked past the service.",
)
registry.callback()(models.models)
registry.command("list")(model_commands.list_models)
registry.command("show")(model_commands.show)
registry.command("promote")(model_commands.promote)
registry.command("lineage")(model_commands.lineage)
registry.command("download")(model_commands.download)
app.add_typer(registry, name="models")
app.command()(shelf.corpora)
app.command()(shelf.clean)
app.command()(shelf.usage)
app.command()(predict.predict)
app.command()(doctor.doctor)
app.command()(stack.serve)
app.command()(migrate.migrate)
app.command()(queue.queue)
app.add_typer(queue.quotas, name="quotas")
app.add_typer(access.keys, name="keys")
app.add_typer(access.projects, name="projects")
app.command()(access.audit)
app.add_typer(webhooks.webhooks, name="webhooks")
