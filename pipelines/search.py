"""One search, stage by stage: prepare → train (trials, then the final round) → evaluate → record.

Trials are pretraining runs on one prepared corpus. What a trial has reached lies in its folder, what is known of all of
them in the ledger: an attempt that starts again runs nothing twice.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from datetime import UTC, datetime

from pipelines.corpus.prepare import prepare_corpus
from pipelines.errors import PipelineError
from pipelines.evaluation import Evaluated, describe_corpus, evaluate_on_cluster
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.job_run import open_job_run
from pipelines.pins import JobPins, said_of_start, take_over_copy
from pipelines.record import tracking
from pipelines.record.identity import RunIdentity
from pipelines.resources import check_resources, run_side_by_side
from pipelines.searching.compare import Choice, best_of_study, winner_of
from pipelines.searching.final_round import final_context
from pipelines.searching.host import host_of
from pipelines.searching.keep import CheckpointSweeper
from pipelines.searching.ledger import Ledger
from pipelines.searching.measures import metric_of, prepare_measure
from pipelines.searching.outcome import make_outcome
from pipelines.searching.record import TRANSFER_FILE, TrialRecorder, record_search
from pipelines.searching.rounds import Rounds
from pipelines.searching.rungs import rung_shares
from pipelines.searching.train_trial import train_until
from pipelines.searching.trial import SearchContext, Trial, make_trial
from pipelines.searching.watch import FolderWatch
from pipelines.specs.documents import JobResult
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.resolving import merge, resolve_pretraining
from pipelines.specs.search import SearchSpec
from pipelines.specs.space import Point
from pipelines.specs.spec_errors import SpecError
from pipelines.specs.transfer import transfer, transfer_text
from pipelines.specs.trial_documents import SettingScores
from pipelines.specs.trials import check_search, trial_spec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.training.curve import say_alive
from pipelines.training.workers import choose_cpu_kernels, limit_threads
from pipelines.weights.initial import FOLDER as INITIAL_WEIGHTS
from pipelines.weights.initial import prepare_initial_weights

log = logging.getLogger(__name__)


def run_search(
    directory: JobDirectory, spec: SearchSpec, attempt: int, tracking_uri: str, reporter: ProgressReporter
) -> JobResult:
    """Run the job to its end.

    Raises:
        PipelineError: any stage's, written for the person who submitted the job.
    """
    base = trial_spec(spec, {})
    check_resources(base.compute, "base.compute")
    run = open_job_run(directory, spec, attempt, tracking_uri)
    reporter.update(now=True, mlflow_run_id=run.run_id, mlflow_experiment_id=run.experiment_id)

    reporter.stage("prepare", "looking at the corpus")
    take_over_copy(directory, said_of_start, INITIAL_WEIGHTS)
    weights = prepare_initial_weights(base, directory.uri)
    corpus = prepare_corpus(
        base.corpus,
        base.tokenizer,
        directory.storage_uri,
        reporter.say,
        owner=directory.job_id,
        pins=JobPins(directory),
    )
    base = trial_spec(spec, {}, corpus.vocab_size)
    context = SearchContext(spec, base, corpus, weights, directory.uri, rung_shares(spec.scheduler))
    measure = prepare_measure(context, directory.storage_uri, reporter.say)
    _record_start(run, spec, corpus)

    reporter.stage("train", "starting trials")
    threading.Thread(target=tracking.import_flavour, name="import", daemon=True).start()
    metric, mode = metric_of(spec.objective)
    ledger = Ledger(directory, metric, mode)
    with TrialRecorder(run, directory, ledger) as recorder:
        rounds = Rounds(context, measure, ledger, reporter, recorder, attempt)
        if spec.final is None or not spec.final.is_study:
            rounds.search()
        settings = rounds.settle()

        reporter.stage("evaluate", "exporting the winner")
        winner, choice = _winner(spec, ledger, settings)
        trial = _winning_trial(context, ledger, winner)
        evaluated = _export(trial, spec, directory, reporter)
        recorder.finish()

    reporter.stage("record", "registering the models")
    outcome = make_outcome(context, ledger, settings, winner, choice)
    left_out: dict[str, str] = {}
    transferred = _transfer(spec, trial, winner, left_out)
    if transferred is not None:
        outcome = outcome.model_copy(update={"transfer_uri": directory.path("report", TRANSFER_FILE)})
    models = record_search(
        run, directory, _named(trial, spec), spec.space, outcome, ledger, evaluated, transferred, left_out
    )
    CheckpointSweeper(ledger, directory.uri, 0).sweep_all()
    return JobResult(
        state="SUCCEEDED",
        attempt=attempt,
        evaluation=evaluated.figures,
        baselines=evaluated.baselines,
        corpus=describe_corpus(corpus),
        search=outcome,
        left_out=left_out,
        models=models,
        example=evaluated.example,
        mlflow_run_id=run.run_id,
        mlflow_experiment_id=run.experiment_id,
        finished_at=datetime.now(UTC),
    )


def _record_start(run: RunIdentity, spec: SearchSpec, corpus: PreparedCorpus) -> None:
    tracking.log_params(run, spec.model_dump(mode="json"))
    tracking.set_tags(run, {"electra.corpus": corpus.digest, "electra.vocab_size": str(corpus.vocab_size)})
    report = check_search(spec)
    if report.num_invalid:
        extra = {"num_looked_at": report.num_looked_at, "num_invalid": report.num_invalid, "first": report.problems[0]}
        log.warning("points_invalid", extra=extra)


def _winner(spec: SearchSpec, ledger: Ledger, settings: tuple[SettingScores, ...]) -> tuple[Point, Choice | None]:
    """The point to take, and what the final round says of it."""
    if spec.final is None:
        return ledger.best(1)[0].point, None
    if spec.final.is_study:
        best = best_of_study(settings)
        if best is None:
            raise PipelineError("no training of the study came to a score")
        return best.point, None
    choice = winner_of(settings, spec.final.confidence, len(spec.final.seeds))
    if choice is None:
        raise PipelineError("no training of the final round came to a score")
    return choice.setting.point, choice


def _winning_trial(context: SearchContext, ledger: Ledger, winner: Point) -> Trial:
    """Of the winner's trainings the one with the best score."""
    # One that diverged or failed on its way has the score of an earlier rung, and no network to export.
    of_use = [one for one in ledger.trials if one.score is not None and one.state in ("COMPLETED", "STOPPED")]
    own = [one for one in of_use if one.point == dict(winner)]
    own = [one for one in own if one.is_final] or own
    sign = -1.0 if ledger.mode == "max" else 1.0
    best = min(own, key=lambda one: sign * (one.score or 0.0))
    return make_trial(final_context(context), winner, best.seed)


def _export(trial: Trial, spec: SearchSpec, directory: JobDirectory, reporter: ProgressReporter) -> Evaluated:
    """The winner's networks; trained once more where their checkpoint is gone, to the same weights.

    Raises:
        JobCancelled: the job was asked to stop.
        TimeoutError: the training had begun and said nothing for hours.
    """
    watch = FolderWatch("the winner", trial.uri)

    def look(_: int) -> None:
        reporter.raise_if_cancelled()
        watch.look()

    for _ in run_side_by_side(_train_to_end, [(trial, directory.uri)], host_of(trial.spec.compute), look):
        pass
    task = replace(trial.task, spec=_named(trial, spec))
    return evaluate_on_cluster(task, directory.uri, directory.job_id)


def _transfer(spec: SearchSpec, trial: Trial, winner: Point, left_out: dict[str, str]) -> str | None:
    """The spec for the larger preset; the search is not lost where there can be none."""
    if spec.transfer_to is None:
        return None
    try:
        return transfer_text(*transfer(spec, trial.spec, winner))
    except SpecError as error:
        left_out[f"transfer to {spec.transfer_to}"] = str(error)[:500]
        return None


def _train_to_end(argument: tuple[Trial, str]) -> None:
    trial, job_uri = argument
    num_workers = trial.spec.compute.num_workers
    say_alive(trial.uri, "training to its end", is_waiting=num_workers > 1)  # of several this is only their host
    if num_workers == 1:
        limit_threads(trial.spec.compute)
        choose_cpu_kernels()
    train_until(trial.task, trial.spec.training.num_train_steps, trial.uri, job_uri)


def _named(trial: Trial, spec: SearchSpec) -> PretrainSpec:
    """The winner's spec as a job of its own would have it."""
    changes = {"name": spec.name, "record": spec.record.model_dump(mode="json")}
    return resolve_pretraining(merge(trial.spec.model_dump(mode="json"), changes))
