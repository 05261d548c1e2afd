"""A job's directory: where its documents lie and who writes them."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, Self

from pydantic import ValidationError

from pipelines import storage
from pipelines.claims import Claim, read_note
from pipelines.errors import JobCancelled, JobSuperseded
from pipelines.specs.documents import (
    CONTROL_FILE,
    ORIGIN_FILE,
    PROGRESS_FILE,
    RESULT_FILE,
    SPEC_FILE,
    Control,
    JobResult,
    Origin,
    Progress,
    Stage,
)
from pipelines.specs.earlier import as_it_was
from pipelines.specs.jobs import SPECS, JobSpec
from pipelines.specs.parsing import dump_spec
from pipelines.specs.spec_errors import FieldProblem, SpecError, problems_of

log = logging.getLogger(__name__)

REPORT_INTERVAL_SECONDS = 2.0
"""Shortest time between two writings of progress.json and between two readings of control.json."""


class JobDirectory:
    """`{storage_uri}/jobs/{job_id}`: spec, control, progress and result, checkpoints, exports and report."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @property
    def job_id(self) -> str:
        """Last part of the directory's URI."""
        return self.uri.rstrip("/").rpartition("/")[2]

    @property
    def storage_uri(self) -> str:
        """Root under which corpora, tokenizers and other jobs lie."""
        return self.uri.rstrip("/").rpartition("/")[0].rpartition("/")[0]

    def path(self, *parts: str) -> str:
        """URI of something inside the directory."""
        return storage.join(self.uri, *parts)

    def read_spec(self) -> JobSpec:
        """The resolved spec.

        Raises:
            SpecError: the file breaks a rule.
            StorageError: there is none.
        """
        data = storage.read_bytes(self.path(SPEC_FILE))
        try:
            # JSON as we wrote it: YAML would read some characters otherwise, and has a limit meant for people's files.
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise SpecError([FieldProblem((), f"spec.json must be JSON: {error}", None)]) from error
        kind = document.get("kind") if isinstance(document, dict) else None
        if not isinstance(kind, str) or kind not in SPECS:
            raise SpecError([FieldProblem(("kind",), f"must be one of {', '.join(SPECS)}", repr(kind))])
        try:
            return SPECS[kind].model_validate_json(json.dumps(as_it_was(document)))
        except ValidationError as error:
            raise SpecError(problems_of(error, SPECS[kind])) from error

    def write_spec(self, spec: JobSpec) -> None:
        """Write the resolved spec."""
        storage.write_bytes(self.path(SPEC_FILE), dump_spec(spec).encode())

    def read_control(self) -> Control:
        """What the service wishes; `run` where it never said anything."""
        if not storage.exists(self.path(CONTROL_FILE)):
            return Control()
        return Control.model_validate(storage.read_json(self.path(CONTROL_FILE)))

    def read_origin(self) -> Origin | None:
        """Whose work the job goes on with; None where it is nobody's."""
        if not storage.exists(self.path(ORIGIN_FILE)):
            return None
        return Origin.model_validate(storage.read_json(self.path(ORIGIN_FILE)))

    def read_attempt(self) -> int:
        """The attempt that the folder belongs to; 0 before the first."""
        note = read_note(self.uri)
        return 0 if note is None else note.attempt

    def read_wish(self, attempt: int | None) -> Literal["run", "pause", "cancel"]:
        """What the service wishes of an attempt; None asks for the one that has the folder."""
        control = self.read_control()
        if control.action == "run":
            return "run"
        if control.attempt is not None and control.attempt != (attempt or self.read_attempt()):
            return "run"
        return "pause" if control.then == "pause" else "cancel"

    def read_result(self) -> JobResult | None:
        """The job's last word, or None while it has none."""
        if not storage.exists(self.path(RESULT_FILE)):
            return None
        return JobResult.model_validate(storage.read_json(self.path(RESULT_FILE)))

    def write_result(self, result: JobResult) -> None:
        """Write the job's last word."""
        storage.write_json(self.path(RESULT_FILE), result.model_dump(mode="json"))

    def read_progress(self) -> Progress | None:
        """Where the job said it was, or None while it said nothing."""
        if not storage.exists(self.path(PROGRESS_FILE)):
            return None
        return Progress.model_validate(storage.read_json(self.path(PROGRESS_FILE)))

    def write_progress(self, progress: Progress) -> None:
        """Write where the job is."""
        storage.write_json(self.path(PROGRESS_FILE), progress.model_dump(mode="json"))


class ProgressReporter:
    """Keeps progress.json fresh and control.json read, at most every `REPORT_INTERVAL_SECONDS`.

    One process reports at a time: the driver, and rank 0 of the training workers while they run. With `heartbeat`
    a thread repeats the last report, so that a long silent call does not look like a dead job, and calls
    `on_superseded` as soon as another process has the folder. `claim` is what the process has of it, or its driver;
    without one the attempt counts, where it is among the fields.
    """

    def __init__(
        self,
        directory: JobDirectory,
        heartbeat: bool = False,
        on_superseded: Callable[[JobSuperseded], None] | None = None,
        claim: Claim | None = None,
        **fields: Any,
    ) -> None:
        self._directory = directory
        if claim is None and "attempt" in fields:
            claim = Claim(directory.uri, fields["attempt"])
        self.claim = claim
        """What says that the folder is this process's; None where another one answers for that."""
        self._on_superseded = on_superseded
        self._fields: dict[str, Any] = fields
        self._last_written = 0.0
        self._last_control_read = 0.0
        self._is_cancelled = False
        self._is_handing_over = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="progress") if heartbeat else None

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def stage(self, stage: Stage, message: str = "") -> None:
        """Enter a stage; raises as `raise_if_cancelled` does."""
        self._last_control_read = 0.0  # what comes now is written for all to see: a stage begins with a look
        self.update(now=True, stage=stage, message=message, fraction=None)
        self.raise_if_cancelled()

    def say(self, message: str, fraction: float | None = None) -> None:
        """One line for people, and the share of the stage that is done; raises `JobCancelled` if asked to stop."""
        self.update(message=message, fraction=fraction)
        self.raise_if_cancelled()

    def update(self, now: bool = False, **fields: Any) -> None:
        """Change some fields; write them if it is time, or at once with `now`."""
        with self._lock:
            self._fields.update(fields)
            if now or time.monotonic() - self._last_written >= REPORT_INTERVAL_SECONDS:
                self._write()

    def is_due(self) -> bool:
        """Whether an update would be written now: saves callers the work of reckoning figures nobody would see."""
        return time.monotonic() - self._last_written >= REPORT_INTERVAL_SECONDS

    def is_cancelled(self) -> bool:
        """Whether control.json asks this attempt to stop, for good or to go on later; read at most every
        `REPORT_INTERVAL_SECONDS`.

        Raises:
            JobSuperseded: another process has the folder.
        """
        now = time.monotonic()
        if not self._is_cancelled and now - self._last_control_read >= REPORT_INTERVAL_SECONDS:
            self._last_control_read = now
            try:
                if self.claim is not None:
                    self.claim.check()
                self._is_cancelled = self._directory.read_wish(self._fields.get("attempt")) != "run"
            except (storage.StorageError, ValueError) as error:  # of a later version's words, too, no job dies
                log.warning("control_unreadable", extra={"reason": str(error)[:300]})
        return self._is_cancelled

    def raise_if_cancelled(self) -> None:
        """Raise `JobCancelled` if control.json asks the job to stop, `JobSuperseded` if another process has it."""
        if self.is_cancelled():
            raise JobCancelled

    @contextmanager
    def handing_over(self) -> Iterator[None]:
        """Leave reporting to another process, from its first word on; until then the heartbeat goes on.

        So a job that waits for its workers looks alive, and one whose workers hang does not.
        """
        self._is_handing_over = True
        try:
            yield
        finally:
            self._is_handing_over = False
            try:
                written = self._directory.read_progress()
            except (storage.StorageError, ValueError) as error:
                # How the training ended is what the caller must hear; the report loses a step for it.
                log.warning("progress_unreadable", extra={"reason": str(error)[:300]})
                written = None
            if written is not None and written.attempt == self._fields.get("attempt"):
                # What the other process said of the training stays said.
                said = written.model_dump(include={"step", "num_train_steps", "tokens", "losses", "evaluation"})
                self._fields |= said

    @property
    def fields(self) -> dict[str, Any]:
        """What would be written now."""
        return dict(self._fields)

    @property
    def current_stage(self) -> Stage:
        """The stage entered last."""
        stage: Stage = self._fields.get("stage", "start")
        return stage

    def _write(self) -> None:
        self._last_written = time.monotonic()
        try:
            if self._is_handing_over and self._is_taken_over():
                return
            self._directory.write_progress(Progress(heartbeat_at=datetime.now(UTC), **self._fields))
        except storage.StorageError as error:
            # A report that is lost is followed by the next; no training ends for it.
            log.warning("progress_unwritten", extra={"reason": str(error)[:300]})

    def _is_taken_over(self) -> bool:
        written = self._directory.read_progress()
        return written is not None and written.attempt == self._fields.get("attempt") and written.step is not None

    def _beat(self) -> None:
        while not self._stop.wait(REPORT_INTERVAL_SECONDS):
            try:
                if self._on_superseded is not None and self.claim is not None:
                    self.claim.hold()
            except JobSuperseded as error:
                assert self._on_superseded is not None
                self._on_superseded(error)
                return
            except (storage.StorageError, ValueError) as error:
                log.warning("attempt_unreadable", extra={"reason": str(error)[:300]})
            self.update()
