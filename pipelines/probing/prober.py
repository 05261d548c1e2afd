"""Probes: checkpoints of a pretraining job, finetuned beside it on the tasks its spec names.

They run in Ray tasks, on CPUs or GPUs that pretraining leaves free; where it leaves none, when it has ended. A probe
that fails is told and left out: it is no reason to end a pretraining job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from ray.exceptions import RayTaskError

from pipelines import storage
from pipelines.errors import JobCancelled, RecordError
from pipelines.finetuning.base_model import WEIGHTS_FILE as BASE_WEIGHTS_FILE
from pipelines.finetuning.base_model import BaseModel
from pipelines.finetuning.run_seed import find_finished, run_seed
from pipelines.finetuning.seed_task import WEIGHTS_FILE, SeedResult, SeedTask
from pipelines.finetuning.summarise import mean_score, summarise
from pipelines.job import JobDirectory
from pipelines.probing.keeper import JOIN_SECONDS, POLL_SECONDS, CheckpointKeeper
from pipelines.record import tracking
from pipelines.record.identity import RunIdentity
from pipelines.resources import has_room_beside, run_side_by_side
from pipelines.specs.documents import ProbePoint
from pipelines.specs.plan import flops_until
from pipelines.specs.pretrain import PretrainSpec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.tasks.prepare import PreparedTask, TaskPreparation, prepare_task
from pipelines.training.task import TrainingTask

log = logging.getLogger(__name__)

OUTCOME_FILE = "outcome.json"
"""In the folder of a finished probe: its `ProbePoint`."""


def prepare_probe(
    spec: PretrainSpec, corpus: PreparedCorpus, storage_uri: str, waiting: Callable[[int], None]
) -> tuple[PreparedTask, ...]:
    """Read and tokenise the tasks of a job's probe; none where it has none.

    Raises:
        DataError: the files give no such task. Better now than after hours of training.
        StorageError: a file cannot be read.
    """
    probe = spec.probe
    if probe is None:
        return ()
    length = probe.training.max_sequence_length
    wanted = [
        TaskPreparation(
            name, task, corpus.tokenizer_uri, task.max_sequence_length or length, storage_uri, probe.baselines
        )
        for name, task in probe.tasks.items()
    ]
    done = dict(run_side_by_side(prepare_task, wanted, probe.compute.without_gpus(), waiting))
    return tuple(done[place] for place in range(len(wanted)))


class Prober:
    """Probes a job's checkpoints from the beginning of the block to its end; does nothing without tasks.

    Args:
        task: what is trained.
        prepared: of `prepare_probe`.
        directory: of the job; gets the folder `probes`.
        run: its MLflow run, where each probe is recorded at its step.
    """

    def __init__(
        self, task: TrainingTask, prepared: Sequence[PreparedTask], directory: JobDirectory, run: RunIdentity
    ) -> None:
        self._task = task
        self._prepared = prepared
        self._run = run
        self._keeper = None
        if task.spec.probe is not None and prepared:
            self._probe = task.spec.probe
            self._keeper = CheckpointKeeper(task, self._probe, directory)
        self._points: dict[int, ProbePoint | None] = {}
        self.failures: dict[str, str] = {}
        """Probes that gave no scores or whose scores were not recorded, and why."""
        self._training_ended = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="probe", daemon=True)
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        if self._keeper is not None:
            self._opened.enter_context(self._keeper)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._opened.close()
        if self._thread.ident is not None:
            self._thread.join(timeout=JOIN_SECONDS)

    def wait(self, waiting: Callable[[], None]) -> tuple[ProbePoint, ...]:
        """Training has ended: wait for the probes that are left.

        Args:
            waiting: called every second or so; what it raises ends the probes too.

        Returns:
            Every probe that succeeded, by step.
        """
        if self._keeper is None:
            return ()
        self._training_ended.set()
        self._keeper.end()
        while self._thread.is_alive():
            waiting()
            self._thread.join(timeout=1.0)
        for step, reason in self._keeper.missed().items():
            self._fail(step, reason)
        return tuple(point for _, point in sorted(self._points.items()) if point is not None)

    def _work(self) -> None:
        assert self._keeper is not None
        while not self._stop.is_set():
            # In this order: what was copied last is seen after nothing more will be.
            is_over = self._keeper.is_done
            kept = self._keeper.kept
            todo = sorted(kept.keys() - self._points.keys())
            if todo:
                self._try(todo[0], kept[todo[0]])
            elif is_over:
                return
            else:
                self._stop.wait(POLL_SECONDS)

    def _try(self, step: int, base: BaseModel) -> None:
        self._points[step] = None
        try:
            self._points[step] = point = self._probed(step, base)
            self._record(point)
        except JobCancelled:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, pretraining goes on
            # Ray's own text is a traceback; what a process raised says what was wrong.
            self._fail(step, str(error.cause if isinstance(error, RayTaskError) else error))

    def _fail(self, step: int, reason: str) -> None:
        self.failures[f"probe at step {step}"] = reason[:500]
        log.warning("probe_failed", extra={"step": step, "reason": reason[:500]})

    def _probed(self, step: int, base: BaseModel) -> ProbePoint:
        """The outcome, if need be by finetuning. That of an earlier attempt holds, though the data were touched since:
        the weights to finetune again are gone.
        """
        uri = storage.join(base.uri, OUTCOME_FILE)
        if storage.exists(uri):
            point = ProbePoint.model_validate(storage.read_json(uri))
        else:
            point = self._finetune(step, base)
            storage.write_json(uri, point.model_dump(mode="json"))
        storage.delete_tree(storage.join(base.uri, BASE_WEIGHTS_FILE))
        return point

    def _finetune(self, step: int, base: BaseModel) -> ProbePoint:
        probe = self._probe
        runs = [
            SeedTask(task, base, probe.training, probe.compute, seed, storage.join(base.uri, task.name, str(seed)))
            for task in self._prepared
            for seed in probe.training.seeds
        ]
        results = {place: find_finished(run) for place, run in enumerate(runs)}
        for run in (runs[place] for place, result in results.items() if result is not None):
            _delete_weights(run)  # left by a kill after its last word
        places = [place for place, result in results.items() if result is None]
        todo = [runs[place] for place in places]
        for index, result in run_side_by_side(
            run_seed, todo, probe.compute, self._between, self._has_room, log_prefix="probe-"
        ):
            results[places[index]] = result
            _delete_weights(todo[index])
        return self._point(step, results, runs)

    def _between(self, num_done: int) -> None:
        if self._stop.is_set():
            raise JobCancelled

    def _has_room(self, num_running: int) -> bool:
        """A run that is queued would take the place of a training worker that was lost, and that comes back."""
        spec = self._task.spec
        return self._training_ended.is_set() or has_room_beside(spec.compute, self._probe.compute, num_running)

    def _point(self, step: int, results: Mapping[int, SeedResult | None], runs: Sequence[SeedTask]) -> ProbePoint:
        spec, corpus = self._task.spec, self._task.corpus
        summaries = [
            summarise(
                task,
                [
                    result
                    for place, result in sorted(results.items())
                    if result is not None and runs[place].prepared.name == task.name
                ],
            )
            for task in self._prepared
        ]
        return ProbePoint(
            step=step,
            tokens=spec.training.tokens_until(step),
            flops=flops_until(spec, corpus.vocab_size, step),
            mean=mean_score(summaries),
            tasks=tuple(one.scores for one in summaries),
        )

    def _record(self, point: ProbePoint) -> None:
        """Write the figures at their step, unless an earlier attempt did."""
        if point.step in dict(tracking.metric_history(self._run, "probe/mean")):
            return
        figures = {f"probe/{one.task}/{name}": value for one in point.tasks for name, value in one.figures.items()} | {
            "probe/tokens": float(point.tokens),
            "probe/flops": point.flops,
            "probe/mean": point.mean,
        }
        recorder = tracking.Run(self._run)
        recorder.log_metrics(point.step, figures)
        if recorder.close():
            raise RecordError("MLflow did not take the scores in time")
        log.info("probed", extra={"step": point.step, "mean": point.mean})


def _delete_weights(run: SeedTask) -> None:
    """The scores are what is wanted; weights of every probe would fill the disk."""
    storage.delete_tree(storage.join(run.uri, WEIGHTS_FILE))
