"""Copies of the networks to probe, made before their checkpoints are deleted."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from pipelines import storage
from pipelines.errors import PipelineError
from pipelines.finetuning.base_model import BaseModel
from pipelines.finetuning.copy_network import copy_network
from pipelines.job import JobDirectory
from pipelines.specs.probe import ProbeSpec
from pipelines.storage.artifacts import MANIFEST_FILE
from pipelines.training.checkpoint import Checkpoint, list_checkpoints, read_state
from pipelines.training.task import TrainingTask
from pipelines.weights.shapes import networks_to_fill

log = logging.getLogger(__name__)

FOLDER = "probes"
POLL_SECONDS = 2.0
JOIN_SECONDS = 60.0
LAST_LOOKS = 5
"""Times the checkpoints are looked at when training has ended and one of them could not be copied."""


class CheckpointKeeper:
    """Copies what is due on a thread of its own, so that no probe and no record that takes long makes it late.

    Args:
        task: what is trained.
        probe: which checkpoints are due.
        directory: of the job; gets the folder `probes`.
    """

    def __init__(self, task: TrainingTask, probe: ProbeSpec, directory: JobDirectory) -> None:
        self._task = task
        self._probe = probe
        self._directory = directory
        self._kept: dict[int, BaseModel] = {}
        self._reasons: dict[int, str] = {}
        self._training_ended = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="keep", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._training_ended.set()
        self._thread.join(timeout=JOIN_SECONDS)

    @property
    def kept(self) -> dict[int, BaseModel]:
        """Copies by step; those of earlier attempts too."""
        return dict(self._kept)

    @property
    def is_done(self) -> bool:
        """No copy will come any more."""
        return not self._thread.is_alive()

    def end(self) -> None:
        """Training has ended: what is there now is all there will be."""
        self._training_ended.set()

    def missed(self) -> dict[int, str]:
        """Steps that were due and of which there is no copy, and why."""
        lost = "its checkpoint was deleted before it could be copied"
        return {step: self._reasons.get(step, lost) for step in self._due_steps() if step not in self._kept}

    def _due_steps(self) -> tuple[int, ...]:
        return self._task.spec.probed_steps

    def _work(self) -> None:
        while not self._training_ended.is_set():
            self._look()
            self._training_ended.wait(POLL_SECONDS)
        for _ in range(LAST_LOOKS):
            if self._stop.is_set() or self._look():
                return
            self._stop.wait(POLL_SECONDS)

    def _look(self) -> bool:
        """Copy what is due; False where some of it could not be."""
        try:
            for uri in storage.list_directory(self._directory.path(FOLDER)):
                base = self._read(uri)
                if base is not None:
                    self._kept.setdefault(_step_of(uri), base)
            checkpoints = list_checkpoints(self._task.checkpoints_uri)
        except Exception as error:  # noqa: BLE001 - a thread that died of it would keep nothing more
            # One may just have been deleted; the storage may be away for a moment.
            log.warning("probe_checkpoints_unread", extra={"reason": str(error)[:300]})
            self._reasons |= {step: _reason(error) for step in self._due_steps() if step not in self._kept}
            return False
        due = [one for one in checkpoints if one.step in self._due_steps() and one.step not in self._kept]
        copied = [self._copy(checkpoint) for checkpoint in due]  # each of them, whatever becomes of the others
        return all(copied)

    def _copy(self, checkpoint: Checkpoint) -> bool:
        try:
            self._kept[checkpoint.step] = self._write(checkpoint)
        except Exception as error:  # noqa: BLE001 - as above
            log.warning("probe_checkpoint_uncopied", extra={"step": checkpoint.step, "reason": str(error)[:300]})
            self._reasons[checkpoint.step] = _reason(error)
            return False
        return True

    def _write(self, checkpoint: Checkpoint) -> BaseModel:
        networks = networks_to_fill(self._task.spec, self._task.corpus.vocab_size)
        networks.load_state_dict(read_state(checkpoint)["networks"])
        folder = self._directory.path(FOLDER, f"step_{checkpoint.step:08d}")
        return copy_network(networks, folder, self._task.corpus.special, self._origin(checkpoint.step))

    def _origin(self, step: int) -> str:
        return f"{self._directory.job_id} at step {step}"

    def _read(self, folder: str) -> BaseModel | None:
        manifest = storage.join(folder, MANIFEST_FILE)
        if not storage.exists(manifest):
            return None
        corpus = self._task.corpus
        return BaseModel(
            uri=folder,
            sha256=str(storage.read_json(manifest)["sha256"]),
            encoder=self._task.spec.model.discriminator(corpus.vocab_size),
            special=corpus.special,
            origin=self._origin(_step_of(folder)),
            without_pretraining=False,
        )


def _step_of(folder: str) -> int:
    return int(folder.rpartition("_")[2])


def _reason(error: Exception) -> str:
    """Our own errors are sentences; of others the kind says more than the text."""
    return (str(error) if isinstance(error, PipelineError) else f"{type(error).__name__}: {error}")[:500]
