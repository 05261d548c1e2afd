"""What Ray Tune runs: an actor that brings one trial after another from rung to rung.

The actor stays when a trial ends and takes the next, so that only the first trial of each pays for a process: its
imports and its compiled kernels.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import Any

from ray import tune
from ray.exceptions import RayError, RayTaskError

from pipelines.errors import CheckpointError, JobCancelled, PipelineError, StorageError
from pipelines.job import JobDirectory
from pipelines.joblogs.context import LogContext, SwitchedLogs
from pipelines.logs import configure_logging
from pipelines.searching.advance import advance
from pipelines.searching.measures import Measure
from pipelines.searching.trial import RungResult, SearchContext, make_trial, write_error
from pipelines.training.workers import choose_cpu_kernels, limit_threads

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrialActorTask:
    """What every actor needs to know."""

    context: SearchContext
    measure: Measure
    logs: LogContext | None = None


class TrialActor(tune.Trainable):
    """One trial at a time; `config` names it: `number`, `point`, `seed`, and how much of it is known."""

    def setup(self, config: dict[str, Any], task: TrialActorTask | None = None) -> None:
        """Start the process."""
        assert task is not None  # `tune.with_parameters` gives it
        self._task = task
        configure_logging(job_id=JobDirectory(task.context.job_uri).job_id, rank=0)
        self._is_ready = False
        self._logs = SwitchedLogs(task.logs)
        self._begin(config)

    def step(self) -> dict[str, Any]:
        """Go on to the next rung; what it raises Ray Tune takes for a lost process, and tries again."""
        rung = self._rung
        shares = self._task.context.shares
        is_known = rung < self._config["num_known"]
        told: dict[str, Any] = {
            "number": self._config["number"],
            "rung": rung,
            "share": shares[rung],
            "replayed": is_known,
        }
        trial = make_trial(self._task.context, self._config["point"], self._config["seed"])
        try:
            self._make_ready(trial.spec.compute)
            result = advance(trial, self._task.measure, rung, self._task.context.job_uri)
        except JobCancelled:
            return told | {"done": True, "score": float("nan"), "cancelled": True}
        except Exception as error:
            log.warning("trial_stopped", extra={"number": self._config["number"], "rung": rung}, exc_info=True)
            # The storage may be back in a moment, and a damaged checkpoint is trained again; else the fault is the
            # trial's, and comes again.
            is_final = isinstance(error, PipelineError) and not isinstance(error, StorageError | CheckpointError)
            if is_final:
                return told | {"done": True, "score": float("nan"), "failure": f"{error}"}
            with contextlib.suppress(StorageError):
                write_error(trial, error, is_passing=_is_passing(error))
            raise
        self._rung += 1
        score = float("nan") if result.score is None else result.score
        return told | {"score": score, "done": self._is_end(rung, result)}

    def _is_end(self, rung: int, result: RungResult) -> bool:
        is_known_end = self._config["is_replay"] and rung + 1 >= self._config["num_known"]
        return rung + 1 == len(self._task.context.shares) or result.score is None or is_known_end

    def _make_ready(self, compute: Any) -> None:
        if not self._is_ready and compute.num_workers == 1:
            limit_threads(compute)
            choose_cpu_kernels()
        self._is_ready = True

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial in this process."""
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        """The process ends, or is free."""
        self._logs.close()

    def _begin(self, config: dict[str, Any]) -> None:
        self._logs.switch(f"trial-{config['number']}")
        self._config = config
        self._rung = 0


def _is_passing(error: BaseException) -> bool:
    """Whether another process, at another time, may not meet with it: a lost machine, a storage out of reach."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    of_workers = getattr(cause, "worker_failures", {}).values()  # of `ray.train.TrainingFailedError`
    return isinstance(cause, StorageError | RayError | ConnectionError | TimeoutError) or any(
        isinstance(one, RayError) or "died" in str(one) for one in of_workers
    )
