"""One pretraining job, stage by stage: prepare → train → evaluate → record.

Each stage takes frozen records and returns one, and returns at once if its complete output is there already: a
restart is a start.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from electra_core.parts import exported_networks
from pipelines import storage
from pipelines.corpus.prepare import prepare_corpus
from pipelines.errors import RecordError
from pipelines.evaluation import Evaluated, describe_corpus, evaluate_on_cluster
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.job_run import open_job_run
from pipelines.origin import take_over_checkpoint, taken_over_step
from pipelines.pins import JobPins, said_of_start, take_over_copy
from pipelines.probing.prober import Prober, prepare_probe
from pipelines.record import tracking
from pipelines.record.card import card_text
from pipelines.record.identity import RunIdentity
from pipelines.record.report import plain_example, plot_learning_rate, plot_losses, plot_probe
from pipelines.registering import register_networks
from pipelines.resources import check_resources
from pipelines.specs.advice import spec_warnings
from pipelines.specs.documents import JobResult, ModelVersion, ProbePoint
from pipelines.specs.plan import JobPlan, plan_job
from pipelines.specs.pretrain import PretrainSpec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.training.fitting import WorkerTask, fit
from pipelines.training.native_build import build_native_library
from pipelines.training.task import TrainingTask
from pipelines.training.telemetry import HEADLINE_LOSSES
from pipelines.weights.initial import FOLDER as INITIAL_WEIGHTS
from pipelines.weights.initial import prepare_initial_weights

log = logging.getLogger(__name__)


def run_pretraining(
    directory: JobDirectory, spec: PretrainSpec, attempt: int, tracking_uri: str, reporter: ProgressReporter
) -> JobResult:
    """Run the job to its end.

    Raises:
        PipelineError: any stage's, written for the person who submitted the job.
    """
    for warning in spec_warnings(spec):
        log.warning("spec_warning", extra={"reason": warning})
    check_resources(spec.compute)
    if spec.probe is not None:
        check_resources(spec.probe.compute, "probe.compute")
    run = open_job_run(directory, spec, attempt, tracking_uri)
    reporter.update(now=True, mlflow_run_id=run.run_id, mlflow_experiment_id=run.experiment_id)

    if not spec.compute.num_gpus:
        # Compiled while the corpus is prepared, where the workers will look for them if they run on this machine.
        threading.Thread(target=build_native_library, name="compile", daemon=True).start()
    reporter.stage("prepare", "looking at the corpus")
    # First: weights that do not fit are refused before hours go into a corpus.
    take_over_copy(directory, said_of_start, INITIAL_WEIGHTS)
    initial_weights = prepare_initial_weights(spec, directory.uri)
    corpus = prepare_corpus(
        spec.corpus,
        spec.tokenizer,
        directory.storage_uri,
        reporter.say,
        owner=directory.job_id,
        pins=JobPins(directory),
    )
    prepared = prepare_probe(spec, corpus, directory.storage_uri, lambda _: reporter.say("reading the probe's tasks"))
    _record_start(run, spec, corpus, plan_job(spec, vocab_size=corpus.vocab_size))

    reporter.stage("train", "starting workers")
    threading.Thread(target=tracking.import_flavour, name="import", daemon=True).start()
    task = TrainingTask(spec, corpus, directory.path("checkpoints"), initial_weights)
    take_over_checkpoint(directory, task.identity)
    taken_over = taken_over_step(directory)
    reporter.update(taken_over_step=taken_over)
    with Prober(task, prepared, directory, run) as prober:
        with reporter.handing_over():  # rank 0 reports meanwhile
            token = reporter.claim.token if reporter.claim else None
            fit(WorkerTask(task, directory.uri, run, attempt, token, taken_over_step=taken_over))

        reporter.stage("evaluate", "scoring held-out text and exporting")
        evaluated = evaluate_on_cluster(task, directory.uri, directory.job_id)
        probed = prober.wait(lambda: reporter.say("finetuning the checkpoints that are left to probe"))

    reporter.stage("record", "registering the models")
    models = record(run, spec, directory, evaluated, probed)
    return JobResult(
        state="SUCCEEDED",
        attempt=attempt,
        step=spec.training.num_train_steps,
        taken_over_step=taken_over,
        evaluation=evaluated.figures,
        baselines=evaluated.baselines,
        corpus=describe_corpus(corpus),
        probe=probed,
        left_out=prober.failures,
        models=models,
        example=evaluated.example,
        mlflow_run_id=run.run_id,
        mlflow_experiment_id=run.experiment_id,
        finished_at=datetime.now(UTC),
    )


def _record_start(run: RunIdentity, spec: PretrainSpec, corpus: PreparedCorpus, plan: JobPlan) -> None:
    """Parameters, spec, manifest and price: on record before the first step, so that a failed run has them too."""
    tracking.log_params(run, spec.model_dump(mode="json"))
    tracking.set_tags(run, {"electra.corpus": corpus.digest, "electra.vocab_size": str(corpus.vocab_size)})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        storage.write_json(str(folder / "spec.json"), spec.model_dump(mode="json"))
        storage.write_json(str(folder / "plan.json"), plan.model_dump(mode="json", exclude={"spec"}))
        manifest = storage.read_json(storage.join(corpus.uri, "manifest.json"))
        storage.write_json(str(folder / "corpus_manifest.json"), manifest)
        tracking.log_artifacts(run, folder)


def record(
    run: RunIdentity,
    spec: PretrainSpec,
    directory: JobDirectory,
    evaluated: Evaluated,
    probed: Sequence[ProbePoint] = (),
) -> tuple[ModelVersion, ...]:
    """Curves, card, exports and registered versions of the networks, the main one first."""
    main = exported_networks(spec.objective)[0]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _record_final_figures(run, spec.training.num_train_steps, evaluated)
        _draw_report(run, folder / "report", evaluated.figures)
        if probed:
            plot_probe(probed, folder / "report" / "probe.png")
        local = {network: storage.download_tree(uri, folder / network) for network, uri in evaluated.exports.items()}
        shutil.copy(local[main] / "README.md", folder / "report" / "model_card.md")
        (folder / "report" / "example.txt").write_text(plain_example(evaluated.example) + "\n", encoding="utf-8")
        storage.upload_tree(folder / "report", directory.path("report"))
        tracking.log_artifacts(run, folder / "report", "report")
        models = register_networks(run, spec, directory.job_id, local, evaluated.exports)
        # MLflow's own name for the description that its run page shows.
        tracking.end_run(run, "FINISHED", {"mlflow.note.content": card_text(local[main])})
    return models


def _record_final_figures(run: RunIdentity, step: int, evaluated: Evaluated) -> None:
    recorded = max(tracking.last_recorded_step(run, f"eval/{name}") for name in HEADLINE_LOSSES)
    final = tracking.Run(run, {"eval": recorded})
    final.log_metrics(step, {f"eval/{name}": value for name, value in evaluated.figures.items()})
    if final.close():
        raise RecordError("MLflow did not take the final figures in time")


def _draw_report(run: RunIdentity, folder: Path, final_figures: Mapping[str, float]) -> None:
    folder.mkdir(parents=True)
    names = tuple(final_figures)
    train = {name: tracking.metric_history(run, f"train/{name}") for name in names}
    held_out = {name: tracking.metric_history(run, f"eval/{name}") for name in names}
    plot_losses(train, held_out, folder / "losses.png")
    plot_learning_rate(
        tracking.metric_history(run, "train/learning_rate"),
        tracking.metric_history(run, "train/gradient_norm"),
        folder / "learning_rate.png",
    )
