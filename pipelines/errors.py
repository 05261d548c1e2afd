"""What can go wrong in a job.

PipelineError
 ├── StorageError          a URI cannot be read or written
 ├── CorpusError           the text cannot be trained on
 │    └── DataError        labelled files do not give a task
 ├── ResourceError         the cluster cannot give what the spec asks
 ├── CheckpointError       a checkpoint is absent, incomplete or of another spec
 ├── NonFiniteLossError    a loss became NaN or infinite at `step`
 ├── RecordError           MLflow does not take what must be recorded
 ├── JobCancelled          the job was asked to stop, for good or to go on later, and did
 └── JobSuperseded         a later attempt has begun: this one has no say any more

Every class survives pickling: Ray carries them from workers to the driver.
"""

from __future__ import annotations

from typing import Any


class PipelineError(Exception):
    """A job cannot go on. The message is written for the person who submitted it."""


class StorageError(PipelineError):
    """A URI cannot be read or written: it is absent, closed to us, or out of reach."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"{uri}: {reason}")
        self.uri = uri
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.uri, self.reason)


class CorpusError(PipelineError):
    """The sources do not give a corpus. `report` holds one line per bad record, by file and line."""

    def __init__(self, message: str, report: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.report)


class DataError(CorpusError):
    """Labelled files do not give a task: a column, a label, an answer or every row is wrong."""


class ResourceError(PipelineError):
    """The cluster does not have, or did not give in time, what the spec asks for."""


class CheckpointError(PipelineError):
    """A checkpoint is absent, incomplete, or was written by another spec."""


class NonFiniteLossError(PipelineError):
    """A loss became NaN or infinite.

    Args:
        step: optimizer step, counted from 0.
        message: what was seen, for the user.
    """

    def __init__(self, step: int, message: str | None = None) -> None:
        super().__init__(message or f"the loss is not finite at step {step}")
        self.step = step
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.step, self.message)


class RecordError(PipelineError):
    """MLflow does not answer, or refuses. `can_retry` is False where it will always refuse."""

    def __init__(self, message: str, can_retry: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.can_retry = can_retry

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.can_retry)


class JobCancelled(PipelineError):  # noqa: N818 - what happened, not a fault
    """The job was asked to stop, for good or to go on later, and did."""


class JobSuperseded(PipelineError):  # noqa: N818 - what happened, not a fault
    """A later attempt has begun: this one must write nothing more."""

    def __init__(self, attempt: int, later: int) -> None:
        begun = f"attempt {later} has begun" if later != attempt else f"attempt {attempt} has begun once more"
        super().__init__(f"{begun}: attempt {attempt} leaves without a word")
        self.attempt = attempt
        self.later = later

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.attempt, self.later)
