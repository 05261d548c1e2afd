"""A search on record: a child run for each trial as it ends, then tables, plots and the winner's models."""

from __future__ import annotations

import contextvars
import json
import logging
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from electra_core.parts import exported_networks
from pipelines import storage
from pipelines.errors import PipelineError, RecordError
from pipelines.evaluation import Evaluated
from pipelines.job import JobDirectory
from pipelines.record import tracking
from pipelines.record.card import card_text
from pipelines.record.identity import RunIdentity
from pipelines.record.report import plain_example
from pipelines.registering import register_networks
from pipelines.searching.figures import search_figures
from pipelines.searching.ledger import Ledger
from pipelines.searching.plots import draw_search
from pipelines.searching.study import draw_study
from pipelines.searching.table import outcome_table
from pipelines.searching.trial import FOLDER
from pipelines.specs.documents import ModelVersion
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.space import Space
from pipelines.specs.trial_documents import SearchOutcome, TrialSummary

log = logging.getLogger(__name__)

JOIN_SECONDS = 300.0
STATE_TAG = "electra.trial_state"
TRANSFER_FILE = "transfer.yaml"


class TrialRecorder:
    """Records ended trials on a thread of its own: no trial waits for MLflow.

    A context; its end waits for nothing. `finish` records what is left.

    Args:
        run: of the job.
        directory: of the job.
        ledger: tells which trials have ended.
    """

    def __init__(self, run: RunIdentity, directory: JobDirectory, ledger: Ledger) -> None:
        self._run = run
        self._directory = directory
        self._ledger = ledger
        self._handed_over: set[int] = set()
        self._recorded: set[int] = set()
        self._queue: queue.SimpleQueue[TrialSummary | None] = queue.SimpleQueue()
        # A thread starts without the context of the log.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=lambda: context.run(self._work), name="record", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._queue.put(None)

    def hand_over(self) -> None:
        """Have those recorded that have ended since; what failed only at the end, for it may be tried again."""
        for trial in self._ledger.trials:
            if trial.state not in ("RUNNING", "FAILED") and trial.number not in self._handed_over:
                self._handed_over.add(trial.number)
                self._queue.put(trial)

    def finish(self) -> None:
        """Record what is left, and try again what could not be recorded.

        Raises:
            RecordError: MLflow does not answer, or refuses.
        """
        self.hand_over()
        self._queue.put(None)
        while self._thread.is_alive():
            num_left = self._queue.qsize()
            self._thread.join(timeout=JOIN_SECONDS)
            if self._thread.is_alive() and self._queue.qsize() >= num_left:
                raise RecordError(f"MLflow recorded none of {num_left} trials in {JOIN_SECONDS:.0f} s")
        for trial in self._ledger.trials:
            if trial.number not in self._recorded:
                self._record(trial)

    def _work(self) -> None:
        while (trial := self._queue.get()) is not None:
            try:
                self._record(trial)
            except Exception as error:  # noqa: BLE001 - tried again at the end; the search goes on
                log.warning("trial_unrecorded", extra={"trial": trial.number, "reason": str(error)[:300]})

    def _record(self, trial: TrialSummary) -> None:
        params = {
            "number": trial.number,
            "round": "final" if trial.is_final else "search",
            "seed": trial.seed,
            "num_train_steps": trial.num_train_steps,
            **trial.point,
        }
        name = f"{'final' if trial.is_final else 'trial'} {trial.number:04d}"
        # A tag and no parameter: what failed is tried again by the next attempt, and parameters cannot change.
        tags = {STATE_TAG: trial.state}
        seconds = trial.train_seconds + trial.score_seconds
        tracking.record_child(self._run, name, f"trial/{trial.number}", params, self._metrics(trial), tags, seconds)
        self._recorded.add(trial.number)

    def _metrics(self, trial: TrialSummary) -> list[tuple[str, int, float]]:
        metrics = [(f"train/{name}", step, value) for step, losses in self._losses(trial) for name, value in losses]
        for rung in trial.rungs:
            metrics += [(f"score/{name}", rung.step, value) for name, value in rung.figures.items()]
            metrics += [("flops", rung.step, rung.flops), ("tokens", rung.step, float(rung.tokens))]
            if rung.score is not None:
                metrics.append((self._ledger.metric, rung.step, rung.score))
        return metrics

    def _losses(self, trial: TrialSummary) -> list[tuple[int, list[tuple[str, float]]]]:
        """Of training, from the folder of the trial; a file that cannot be read costs its part of the curve."""
        folder = self._directory.path(FOLDER, trial.folder)
        found: list[tuple[int, list[tuple[str, float]]]] = []
        try:
            for uri in storage.list_directory(folder) if trial.folder else []:
                if uri.rpartition("/")[2].startswith("scored_"):
                    found += [(int(step), list(values.items())) for step, values in storage.read_json(uri)["losses"]]
        except PipelineError as error:
            log.warning("curve_unread", extra={"trial": trial.number, "reason": str(error)[:300]})
        return found


def draw_report(
    outcome: SearchOutcome, trials: Sequence[TrialSummary], space: Space, folder: Path, left_out: dict[str, str]
) -> None:
    """Every picture that can be drawn: after days of training none is worth the search. Those that cannot, and why, are
    added to `left_out`.
    """
    drawings: dict[str, Callable[[], None]] = {
        "search": lambda: draw_search(search_figures(trials, space, outcome.metric, outcome.mode), folder)
    }
    if outcome.is_study:
        drawings["study"] = lambda: draw_study(outcome, folder / "study.png")
    for name, draw in drawings.items():
        try:
            draw()
        except Exception as error:  # noqa: BLE001 - whatever a plotting library does not like of some number
            reason = f"{type(error).__name__}: {error}"[:300]
            log.warning("picture_undrawn", extra={"picture": name, "reason": reason})
            left_out[f"picture of the {name}"] = reason


def record_search(
    run: RunIdentity,
    directory: JobDirectory,
    winner: PretrainSpec,
    space: Space,
    outcome: SearchOutcome,
    ledger: Ledger,
    evaluated: Evaluated,
    transferred: str | None,
    left_out: dict[str, str],
) -> tuple[ModelVersion, ...]:
    """Figures, table, plots, all trials as JSON, and the winner's networks in the registry.

    `left_out` is added to: pictures that could not be drawn, and why.

    Raises:
        RecordError: MLflow does not answer, or refuses.
        StorageError: a file cannot be read or written.
    """
    figures = {f"eval/{name}": value for name, value in evaluated.figures.items()} | {
        "flops/trials": outcome.flops_trials,
        "flops/final": outcome.flops_final,
        "flops/reference": outcome.flops_reference,
        "flops/without_stopping": outcome.flops_without_stopping,
    }
    if outcome.best is not None and outcome.best.score is not None:
        figures[f"best/{outcome.metric}"] = outcome.best.score
    final = tracking.Run(run)
    final.log_metrics(1, figures)
    if final.close():
        raise RecordError("MLflow did not take the final figures in time")
    text = outcome_table(outcome)
    with tempfile.TemporaryDirectory() as scratch:
        folder, report = Path(scratch), Path(scratch) / "report"
        report.mkdir()
        draw_report(outcome, ledger.trials, space, report, left_out)
        (report / "search.md").write_text(text, encoding="utf-8")
        for name, document in (
            ("trials.json", [one.model_dump(mode="json") for one in ledger.trials]),
            ("outcome.json", outcome.model_dump(mode="json")),
            ("winner.json", winner.model_dump(mode="json")),
        ):
            (report / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        if transferred is not None:
            (report / TRANSFER_FILE).write_text(transferred, encoding="utf-8")
        (report / "example.txt").write_text(plain_example(evaluated.example) + "\n", encoding="utf-8")
        local = {network: storage.download_tree(uri, folder / network) for network, uri in evaluated.exports.items()}
        shutil.copy(local[exported_networks(winner.objective)[0]] / "README.md", report / "model_card.md")
        storage.upload_tree(report, directory.path("report"))
        tracking.log_artifacts(run, report, "report")
        models = register_networks(run, winner, directory.job_id, local, evaluated.exports)
        card = card_text(local[exported_networks(winner.objective)[0]])
        tracking.end_run(run, "FINISHED", {"mlflow.note.content": f"{text}\n{card}"})
    return models
