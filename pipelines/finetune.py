"""One finetuning job, stage by stage: prepare → train → evaluate → record.

Tasks times seeds are runs of their own, side by side in Ray tasks; what is finished is never run again.
"""

from __future__ import annotations

import json
import logging
import tempfile
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from pipelines import storage
from pipelines.errors import DataError, RecordError
from pipelines.finetuning.base_model import BaseModel
from pipelines.finetuning.export import architecture, export_finetuned
from pipelines.finetuning.export_task import ExportTask
from pipelines.finetuning.keep_base_model import FOLDER as BASE_MODEL
from pipelines.finetuning.keep_base_model import keep_base_model
from pipelines.finetuning.progress import RunsProgress
from pipelines.finetuning.run_seed import find_finished, run_seed
from pipelines.finetuning.seed_task import WEIGHTS_FILE, SeedResult, SeedTask
from pipelines.finetuning.serving import serving_of
from pipelines.finetuning.submission import write_submissions
from pipelines.finetuning.summarise import TaskSummary, headline, summarise, table
from pipelines.finetuning.take_over import take_over_runs
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.job_run import open_job_run, serving_requirements
from pipelines.pins import take_over_copy
from pipelines.record import tracking
from pipelines.record.card import card_text
from pipelines.record.identity import RunIdentity
from pipelines.resources import check_resources, run_side_by_side
from pipelines.specs.advice import finetuning_warnings
from pipelines.specs.documents import JobResult, ModelVersion
from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.plans import named_tasks
from pipelines.specs.task import GlueSuite, GlueTask, TaskSpec
from pipelines.tasks.glue import missing_files
from pipelines.tasks.prepare import PreparedTask, TaskPreparation, prepare_task

log = logging.getLogger(__name__)


def run_finetuning(
    directory: JobDirectory, spec: FinetuneSpec, attempt: int, tracking_uri: str, reporter: ProgressReporter
) -> JobResult:
    """Run the job to its end.

    Raises:
        PipelineError: any stage's, written for the person who submitted the job.
    """
    for warning in finetuning_warnings(spec):
        log.warning("spec_warning", extra={"reason": warning})
    check_resources(spec.compute)
    run = open_job_run(directory, spec, attempt, tracking_uri)
    reporter.update(now=True, mlflow_run_id=run.run_id, mlflow_experiment_id=run.experiment_id)

    reporter.stage("prepare", "fetching the model")
    tasks, left_out = tasks_of(spec)
    take_over_copy(directory, lambda one: cast(FinetuneSpec, one).model, BASE_MODEL)
    base = keep_base_model(spec.model, directory.uri, tracking_uri)
    prepared = _prepare(spec, tasks, base, directory.storage_uri, reporter)
    _record_start(run, spec, base, prepared)

    reporter.stage("train", "starting")
    threading.Thread(target=tracking.import_flavour, name="import", daemon=True).start()
    runs = [
        SeedTask(task, base, spec.training, spec.compute, seed, directory.path("seeds", task.name, str(seed)))
        for task in prepared
        for seed in spec.training.seeds
    ]
    take_over_runs(runs, directory)
    results = _finetune(runs, spec, reporter)

    reporter.stage("evaluate", "exporting the best seeds")
    summaries = [
        summarise(task, [results[place] for place, one in enumerate(runs) if one.prepared.name == task.name])
        for task in prepared
    ]
    exports = _export(spec, directory, runs, summaries, reporter)

    reporter.stage("record", "registering the models")
    models = _record(run, spec, directory, summaries, left_out, exports, runs, results)
    exported = {export.run.uri for export in exports}
    _delete_weights([one for one in runs if one.uri not in exported])
    first = summaries[0].scores
    return JobResult(
        state="SUCCEEDED",
        attempt=attempt,
        evaluation=headline(summaries),
        baselines=first.baselines.get("majority", {}) if len(summaries) == 1 else {},
        tasks=tuple(one.scores for one in summaries),
        left_out=left_out,
        models=models,
        mlflow_run_id=run.run_id,
        mlflow_experiment_id=run.experiment_id,
        finished_at=datetime.now(UTC),
    )


def tasks_of(spec: FinetuneSpec) -> tuple[dict[str, TaskSpec], dict[str, str]]:
    """The tasks of a job by name, and those of its suite whose files are not there, with the reason.

    Raises:
        DataError: nothing is left of the suite.
        StorageError: a folder cannot be looked at.
    """
    tasks = named_tasks(spec)
    if not isinstance(spec.suite, GlueSuite):
        return tasks, {}
    left_out = {}
    for name, task in list(tasks.items()):
        assert isinstance(task, GlueTask)
        absent = missing_files(task.name, task.uri)
        if absent:
            left_out[name] = f"{task.uri} holds no {' and no '.join(absent)}"
            del tasks[name]
    if not tasks:
        raise DataError(f"suite.uri must hold a task of GLUE, got none in {spec.suite.uri}", tuple(left_out.values()))
    return tasks, left_out


def _prepare(
    spec: FinetuneSpec, tasks: Mapping[str, TaskSpec], base: BaseModel, storage_uri: str, reporter: ProgressReporter
) -> list[PreparedTask]:
    """Read and tokenise all tasks, side by side."""
    preparations = []
    for name, task in tasks.items():
        length = task.max_sequence_length or spec.training.max_sequence_length
        base.check_reads(name, task, length)
        if base.longest_row is not None and length > base.longest_row and not base.without_pretraining:
            log.warning(
                "positions_untrained",
                extra={"task": name, "max_sequence_length": length, "pretrained_on_rows_of": base.longest_row},
            )
        preparations.append(TaskPreparation(name, task, base.uri, length, storage_uri, spec.baselines))

    def tell(num_done: int) -> None:
        reporter.say(f"reading {len(preparations)} tasks, {num_done} done", num_done / len(preparations))

    done = dict(run_side_by_side(prepare_task, preparations, spec.compute.without_gpus(), tell))
    return [done[place] for place in range(len(preparations))]


def _finetune(runs: Sequence[SeedTask], spec: FinetuneSpec, reporter: ProgressReporter) -> dict[int, SeedResult]:
    """Run all runs; those that are finished are only read."""
    results: dict[int, SeedResult] = {}
    for place, run in enumerate(runs):
        found = find_finished(run)
        if found is not None:
            results[place] = found
    if results:
        log.info("runs_found_finished", extra={"num_finished": len(results), "num_runs": len(runs)})
    places = [place for place in range(len(runs)) if place not in results]
    progress = RunsProgress(runs, results, reporter)
    progress.tell(now=True)
    for index, result in run_side_by_side(
        run_seed, [runs[place] for place in places], spec.compute, lambda num_done: progress.tell()
    ):
        results[places[index]] = result
        log.info("run_finished", extra={"run": runs[places[index]].name, "scores": result.scores})
    progress.tell(now=True)
    reporter.update(eta_seconds=None)
    return results


def _export(
    spec: FinetuneSpec,
    directory: JobDirectory,
    runs: Sequence[SeedTask],
    summaries: Sequence[TaskSummary],
    reporter: ProgressReporter,
) -> list[ExportTask]:
    exports = []
    for summary in summaries:
        best = next(run for run in runs if run.prepared.name == summary.prepared.name and run.seed == summary.best.seed)
        exports.append(
            ExportTask(
                run=best,
                scores=summary.scores,
                result=summary.best,
                job_id=directory.job_id,
                model_name=spec.registered_name(summary.prepared.name),
                license=spec.record.license,
                uri=directory.path("exports", summary.prepared.name),
            )
        )
    workers = spec.compute.without_gpus()
    for _ in run_side_by_side(export_finetuned, exports, workers, lambda _: reporter.raise_if_cancelled()):
        pass
    return exports


def _delete_weights(runs: Sequence[SeedTask]) -> None:
    """Scores and predictions of all seeds stay, weights of the best: ten seeds of nine tasks would fill a disk."""
    for run in runs:
        try:
            storage.delete_tree(storage.join(run.uri, WEIGHTS_FILE))
        except storage.StorageError as error:  # not worth a finished job
            log.warning("weights_left", extra={"run": run.name, "reason": str(error)[:300]})


def _origin_tags(base: BaseModel) -> dict[str, str]:
    if base.without_pretraining:
        return {"electra.without_pretraining": base.origin}
    return {"electra.parent_model": base.origin}


def _record_start(run: RunIdentity, spec: FinetuneSpec, base: BaseModel, prepared: Sequence[PreparedTask]) -> None:
    """Parameters and data: on record before the first step, so that a failed run has them too."""
    tracking.log_params(run, spec.model_dump(mode="json"))
    tracking.set_tags(run, _origin_tags(base))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        storage.write_json(str(folder / "spec.json"), spec.model_dump(mode="json"))
        splits = {
            task.name: [
                {
                    "split": split.name,
                    "num_examples": split.num_examples,
                    "num_labelled": split.num_labelled,
                    "num_bad_rows": split.num_bad_rows,
                    "num_also_in_training": split.num_also_in_training,
                    "num_cut": split.num_cut,
                    "num_without_window": split.num_without_window,
                    "report": list(split.report),
                }
                for split in task.splits
            ]
            for task in prepared
        }
        storage.write_json(str(folder / "data.json"), splits)
        tracking.log_artifacts(run, folder)


def _record(
    run: RunIdentity,
    spec: FinetuneSpec,
    directory: JobDirectory,
    summaries: Sequence[TaskSummary],
    left_out: Mapping[str, str],
    exports: Sequence[ExportTask],
    runs: Sequence[SeedTask],
    results: Mapping[int, SeedResult],
) -> tuple[ModelVersion, ...]:
    """A child run for each task and seed, the table, the predictions of the best seeds, and their models."""
    for place, one in enumerate(runs):
        _record_seed(run, one, results[place])
    figures = {f"{one.scores.task}/{name}": value for one in summaries for name, value in one.scores.figures.items()}
    final = tracking.Run(run)
    final.log_metrics(1, figures | headline(summaries))
    if final.close():
        raise RecordError("MLflow did not take the final figures in time")
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report"
        report.mkdir()
        text = table(summaries, left_out)
        (report / "scores.md").write_text(text, encoding="utf-8")
        scores = [one.scores.model_dump(mode="json") for one in summaries]
        (report / "scores.json").write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
        for export in exports:
            write_submissions(export.run, report / "submissions")
        storage.upload_tree(report, directory.path("report"))
        tracking.log_artifacts(run, report, "report")
        models = [_register(run, spec, directory, export, Path(scratch)) for export in exports]
    tracking.end_run(run, "FINISHED", {"mlflow.note.content": text})
    return tuple(models)


def _record_seed(parent: RunIdentity, run: SeedTask, result: SeedResult) -> None:
    metrics = [("train/loss", step, loss) for step, loss in result.losses]
    for step, scores in result.evaluations:
        metrics += [(f"validation/{name}", step, value) for name, value in scores.items()]
    for split, scores in result.scores.items():
        metrics += [(f"{split.replace(' ', '_')}/{name}", result.num_steps, value) for name, value in scores.items()]
    metrics.append(("train/examples_per_second", result.num_steps, result.examples_per_second))
    unit = f"{run.prepared.name}/{run.seed}"
    tracking.record_child(parent, run.name, unit, _params_of(run, result), metrics, seconds=result.seconds)


def _params_of(run: SeedTask, result: SeedResult) -> dict[str, Any]:
    """As MLflow has them. A run that stopped early was trained by the rules of the steps that were planned."""
    num_steps = run.num_steps(run.prepared.steps_per_epoch(run.training.batch_size))
    return {
        "task": run.prepared.name,
        "seed": run.seed,
        "num_train_steps": num_steps,
        "num_steps_taken": result.num_steps,
        "optimizer": run.optimizer(num_steps).model_dump(mode="json"),
    }


def _register(
    run: RunIdentity, spec: FinetuneSpec, directory: JobDirectory, export: ExportTask, scratch: Path
) -> ModelVersion:
    name = export.run.prepared.name
    local = storage.download_tree(export.uri, scratch / "models" / name)
    task = export.run.prepared.task
    serving = serving_of(task)
    version = tracking.register_model(
        run,
        local,
        artifact_name=name,
        model_name=export.model_name,
        alias=spec.record.alias,
        architecture=architecture(export.run),
        task=serving.pipeline,
        pip_requirements=serving_requirements(),
        tags={
            tracking.JOB_TAG: directory.job_id,
            "electra.network": "finetuned",
            "electra.task": name,
            "electra.task_kind": task.kind,
            **_origin_tags(export.run.base),
        },
        description=card_text(local),
        input_example=serving.input_example,
        model_config=serving.model_config,
    )
    return ModelVersion(
        network="finetuned",
        task=name,
        name=export.model_name,
        version=version,
        alias=spec.record.alias,
        export_uri=export.uri,
    )
