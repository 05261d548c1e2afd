"""Probes: checkpoints of a pretraining job, finetuned beside it on the tasks its spec names.

A thread of the driver watches for checkpoints, copies the main network out of those that are due before they are
deleted, and finetunes the copies in Ray tasks, which start where CPUs or GPUs are free. What it
could not do while training went on it does afterwards. A probe that fails is told and left out: it is no reason to end
a pretraining job.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import safetensors.torch
from ray.exceptions import RayTaskError

from electra_core.config import EncoderConfig
from electra_core.conversion.to_transformers import discriminator_state_dict
from pipelines import storage
from pipelines.errors import JobCancelled, PipelineError
from pipelines.finetuning.base_model import WEIGHTS_FILE as BASE_WEIGHTS_FILE
from pipelines.finetuning.base_model import BaseModel
from pipelines.finetuning.run_seed import run_seed
from pipelines.finetuning.seed_task import WEIGHTS_FILE, SeedResult, SeedTask
from pipelines.finetuning.summarise import mean_score, summarise
from pipelines.job import JobDirectory
from pipelines.record import tracking
from pipelines.record.identity import RunIdentity
from pipelines.resources import run_side_by_side
from pipelines.specs.documents import ProbePoint
from pipelines.specs.plan import flops_until
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.probe import ProbeSpec
from pipelines.storage.artifacts import MANIFEST_FILE, PreparedCorpus
from pipelines.tasks.prepare import PreparedTask, TaskPreparation, prepare_task
from pipelines.training.checkpoint import Checkpoint, list_checkpoints, read_state
from pipelines.training.task import TrainingTask
from pipelines.weights.shapes import networks_to_fill

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
JOIN_SECONDS = 60.0
FOLDER = "probes"


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
    done = dict(run_side_by_side(prepare_task, wanted, probe.compute, waiting))
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
        self._directory = directory
        self._run = run
        self._points: dict[int, ProbePoint | None] = {}
        self.failures: dict[str, str] = {}
        """Probes that gave no scores, and why."""
        self._training_ended = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="probe", daemon=True)

    def __enter__(self) -> Self:
        if self._prepared:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=JOIN_SECONDS)

    def wait(self, waiting: Callable[[], None]) -> tuple[ProbePoint, ...]:
        """Training has ended: wait for the probes that are left.

        Args:
            waiting: called every second or so; what it raises ends the probes too.

        Returns:
            Every probe that succeeded, by step.
        """
        self._training_ended.set()
        while self._thread.is_alive():
            waiting()
            self._thread.join(timeout=1.0)
        return tuple(point for _, point in sorted(self._points.items()) if point is not None)

    def _work(self) -> None:
        while not self._stop.is_set():
            # In this order: a checkpoint that was written before training ended is seen after it has ended.
            is_over = self._training_ended.is_set()
            kept = self._keep_due()
            todo = sorted(kept.keys() - self._points.keys())
            if not todo:
                if is_over:
                    return
                self._stop.wait(POLL_SECONDS)
                continue
            step = todo[0]
            try:
                self._points[step] = self._probe(step, kept[step])
            except JobCancelled:
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, pretraining goes on
                self._points[step] = None
                # Ray's own text is a traceback; what a process raised says what was wrong.
                cause = error.cause if isinstance(error, RayTaskError) else error
                self.failures[f"probe at step {step}"] = str(cause)[:500]
                log.warning("probe_failed", extra={"step": step, "reason": str(cause)[:500]})

    def _keep_due(self) -> dict[int, BaseModel]:
        """Copies of the networks to probe, by step; those of earlier attempts too."""
        kept: dict[int, BaseModel] = {}
        probe, steps = self._probe_spec, self._task.spec.training.num_train_steps
        try:
            for uri in storage.list_directory(self._directory.path(FOLDER)):
                base = self._read_base(uri)
                if base is not None:
                    kept[int(uri.rpartition("_")[2])] = base
            for checkpoint in list_checkpoints(self._task.checkpoints_uri):
                if probe.is_due(checkpoint.step, steps) and checkpoint.step not in kept:
                    kept[checkpoint.step] = self._keep(checkpoint)
        except PipelineError as error:
            # It may just have been deleted; the storage may be away for a moment.
            log.warning("probe_checkpoint_unread", extra={"reason": str(error)[:300]})
        return kept

    @property
    def _probe_spec(self) -> ProbeSpec:
        assert self._task.spec.probe is not None
        return self._task.spec.probe

    def _folder(self, step: int) -> str:
        return self._directory.path(FOLDER, f"step_{step:08d}")

    def _keep(self, checkpoint: Checkpoint) -> BaseModel:
        corpus = self._task.corpus
        networks = networks_to_fill(self._task.spec, corpus.vocab_size)
        networks.load_state_dict(read_state(checkpoint)["networks"])
        data = safetensors.torch.save(discriminator_state_dict(networks))
        folder = self._folder(checkpoint.step)
        storage.write_bytes(storage.join(folder, BASE_WEIGHTS_FILE), data)
        storage.write_json(storage.join(folder, MANIFEST_FILE), {"sha256": hashlib.sha256(data).hexdigest()})
        base = self._read_base(folder)
        assert base is not None
        return base

    def _read_base(self, folder: str) -> BaseModel | None:
        manifest = storage.join(folder, MANIFEST_FILE)
        if not storage.exists(manifest):
            return None
        corpus = self._task.corpus
        encoder: EncoderConfig = self._task.spec.model.discriminator(corpus.vocab_size)
        return BaseModel(
            uri=folder,
            sha256=str(storage.read_json(manifest)["sha256"]),
            encoder=encoder,
            special=corpus.special,
            origin=f"{self._directory.job_id} at step {int(folder.rpartition('_')[2])}",
            without_pretraining=False,
        )

    def _probe(self, step: int, base: BaseModel) -> ProbePoint:
        probe = self._probe_spec
        runs = [
            SeedTask(task, base, probe.training, probe.compute, seed, storage.join(base.uri, task.name, str(seed)))
            for task in self._prepared
            for seed in probe.training.seeds
        ]
        results = {place: SeedResult.find(run.uri, run.identity) for place, run in enumerate(runs)}
        places = [place for place, result in results.items() if result is None]
        for index, result in run_side_by_side(
            run_seed, [runs[place] for place in places], probe.compute, self._between
        ):
            results[places[index]] = result
            # The scores are what is wanted; weights of every probe would fill the disk.
            storage.delete_tree(storage.join(runs[places[index]].uri, WEIGHTS_FILE))
        storage.delete_tree(storage.join(base.uri, BASE_WEIGHTS_FILE))
        return self._record(step, results, runs)

    def _between(self, num_done: int) -> None:
        if self._stop.is_set():
            raise JobCancelled
        self._keep_due()

    def _record(self, step: int, results: Mapping[int, SeedResult | None], runs: Sequence[SeedTask]) -> ProbePoint:
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
        point = ProbePoint(
            step=step,
            tokens=spec.training.tokens_until(step),
            flops=flops_until(spec, corpus.vocab_size, step),
            mean=mean_score(summaries),
            tasks=tuple(one.scores for one in summaries),
        )
        figures = {f"probe/{one.task}/{name}": value for one in point.tasks for name, value in one.figures.items()} | {
            "probe/mean": point.mean,
            "probe/tokens": float(point.tokens),
            "probe/flops": point.flops,
        }
        recorder = tracking.Run(self._run, {"probe": tracking.last_recorded_step(self._run, "probe/mean")})
        recorder.log_metrics(step, figures)
        recorder.close()
        log.info("probed", extra={"step": step, "mean": point.mean})
        return point
