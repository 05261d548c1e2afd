"""Folders of jobs and predictions on `pipelines.storage`: local disk or any object store."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from pipelines import storage
from pipelines.errors import StorageError
from pipelines.specs.documents import (
    ANNOUNCED_FOLDER,
    CONTROL_FILE,
    ORIGIN_FILE,
    PROGRESS_FILE,
    RESULT_FILE,
    SPEC_FILE,
    Announcement,
    Control,
    JobResult,
    Origin,
    Progress,
    StopAction,
)
from pipelines.specs.earlier import as_it_was
from pipelines.specs.jobs import JobSpec
from pipelines.specs.parsing import resolve_spec
from pipelines.specs.prediction import ANSWER_FILE, REQUEST_FILE, PredictJob, PredictOutcome
from pipelines.specs.trial_documents import TRIALS_FILE, TrialList
from service.interfaces import AnswerNotUnderstoodError, FolderError
from service.settings import Settings

log = structlog.get_logger(__name__)
_Model = TypeVar("_Model", bound=BaseModel)


class StoredJobFolders:
    """`JobFolders` below `settings.storage_uri`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def write_spec(self, job_id: str, spec_json: str) -> None:
        """Put the spec where the job reads it."""
        _write(self._uri(job_id, SPEC_FILE), spec_json)

    def request_stop(self, job_id: str, action: StopAction, attempt: int) -> None:
        """Ask one attempt of the job to stop; a later one is not meant."""
        control = Control(action="cancel", then="pause" if action == "pause" else "end", attempt=attempt)
        _write(self._uri(job_id, CONTROL_FILE), control.model_dump_json())

    def withdraw_stop(self, job_id: str) -> None:
        """Ask nothing of the job any more. An image of the version before does not look whom a wish is for."""
        _write(self._uri(job_id, CONTROL_FILE), Control().model_dump_json())

    def write_origin(self, job_id: str, retry_of: str) -> None:
        """Say whose work the job goes on with."""
        _write(self._uri(job_id, ORIGIN_FILE), Origin(job_id=retry_of).model_dump_json())

    def read_control(self, job_id: str) -> Control | None:
        """What is asked of the job; None if nothing ever was, or not in words we know."""
        return _read_document(self._uri(job_id, CONTROL_FILE), Control)

    def read_progress(self, job_id: str) -> Progress | None:
        """Where the job is; None if it has not said, or not in words we know."""
        return _read_document(self._uri(job_id, PROGRESS_FILE), Progress)

    def read_result(self, job_id: str) -> JobResult | None:
        """The job's last word; None if there is none, or not in words we know."""
        return _read_document(self._uri(job_id, RESULT_FILE), JobResult)

    def read_trials(self, job_id: str) -> TrialList | None:
        """What a search has tried so far; None if it has not said, or not in words we know."""
        return _read_document(self._uri(job_id, TRIALS_FILE), TrialList)

    def read_spec(self, job_id: str) -> JobSpec:
        """The spec that lies in the folder. Raises `FolderError` too where it is none that this version can read."""
        content = _read(self._uri(job_id, SPEC_FILE))
        if content is None:
            raise FolderError(f"{job_id} has no {SPEC_FILE}")
        try:
            return resolve_spec(as_it_was(json.loads(content)))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise FolderError(f"{SPEC_FILE} of {job_id} is no spec: {error}"[:500]) from error

    def list_announced(self) -> list[str]:
        """Jobs that have left word of themselves, as they were not started from here."""
        try:
            uris = storage.list_directory(storage.join(self._settings.storage_uri, ANNOUNCED_FOLDER))
        except (StorageError, OSError) as error:
            raise FolderError(str(error)) from error
        names = [uri.rstrip("/").rpartition("/")[2] for uri in uris]
        return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def read_announcement(self, job_id: str) -> Announcement | None:
        """What a job has left word of; None if it has not, or not in words we know."""
        word = _read_document(self._announcement_uri(job_id), Announcement)
        return word if word is not None and word.job_id == job_id else None

    def withdraw_announcement(self, job_id: str) -> None:
        """Delete the word that a job has left; nothing happens where there is none."""
        try:
            storage.delete_tree(self._announcement_uri(job_id))
        except (StorageError, OSError) as error:
            raise FolderError(str(error)) from error

    def save_log(self, job_id: str, attempt: int, log: str) -> None:
        """Keep what an attempt printed."""
        _write(self._log_uri(job_id, attempt), log)

    def read_log(self, job_id: str, attempt: int) -> str | None:
        """What an attempt printed; None if it was not saved."""
        content = _read(self._log_uri(job_id, attempt))
        return None if content is None else content.decode("utf-8", errors="replace")

    def _uri(self, job_id: str, *parts: str) -> str:
        return storage.join(self._settings.job_uri(job_id), *parts)

    def _announcement_uri(self, job_id: str) -> str:
        return storage.join(self._settings.storage_uri, ANNOUNCED_FOLDER, f"{job_id}.json")

    def _log_uri(self, job_id: str, attempt: int) -> str:
        return self._uri(job_id, "logs", f"attempt-{attempt}.log")


class StoredPredictionFolders:
    """`PredictionFolders` below `settings.storage_uri`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def write_request(self, prediction_id: str, request: PredictJob) -> None:
        """Put the request where the program reads it."""
        _write(self._uri(prediction_id, REQUEST_FILE), request.model_dump_json())

    def read_outcome(self, prediction_id: str) -> PredictOutcome | None:
        """What the program wrote; None if it has not.

        Raises:
            AnswerNotUnderstoodError: what it wrote is no such document. Files appear whole, so it will not become one.
        """
        content = _read(self._uri(prediction_id, ANSWER_FILE))
        if content is None:
            return None
        try:
            return _parsed(content, PredictOutcome)
        except (ValueError, RecursionError) as error:
            raise AnswerNotUnderstoodError(_fault(error)) from error

    def delete(self, prediction_id: str) -> None:
        """Delete the folder; nothing happens where there is none."""
        try:
            storage.delete_tree(self._settings.prediction_uri(prediction_id))
        except (StorageError, OSError) as error:
            raise FolderError(str(error)) from error

    def list_ids(self) -> list[str]:
        """Names of the folders that are there."""
        try:
            uris = storage.list_directory(self._settings.prediction_uri("").rstrip("/"))
        except (StorageError, OSError) as error:
            raise FolderError(str(error)) from error
        return [uri.rstrip("/").rpartition("/")[2] for uri in uris]

    def _uri(self, prediction_id: str, name: str) -> str:
        return storage.join(self._settings.prediction_uri(prediction_id), name)


def _read_document(uri: str, model: type[_Model]) -> _Model | None:
    try:
        return storage.read_parsed(uri, partial(_parsed, model=model)) if storage.exists(uri) else None
    except (StorageError, OSError) as error:
        raise FolderError(str(error)) from error
    except (ValueError, RecursionError) as error:
        log.warning("document_not_understood", uri=uri, error=_fault(error))
        return None


def _parsed(content: bytes, model: type[_Model]) -> _Model:
    """Raises `ValueError`, as pydantic's and JSON's errors are, or `RecursionError`."""
    return model.model_validate(_finite(json.loads(content)))


def _fault(error: ValueError | RecursionError) -> str:
    """Where a document is wrong, without its words: a prediction's are somebody's text."""
    if isinstance(error, ValidationError):
        items = error.errors(include_input=False, include_context=False, include_url=False)
        return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'document'}: {item['msg']}" for item in items)[:500]
    return str(error)[:500]


def _read(uri: str) -> bytes | None:
    try:
        return bytes(storage.read_bytes(uri)) if storage.exists(uri) else None
    except (StorageError, OSError) as error:
        raise FolderError(str(error)) from error


def _write(uri: str, content: str) -> None:
    try:
        storage.write_bytes(uri, content.encode("utf-8", errors="replace"))
    except (StorageError, OSError) as error:
        raise FolderError(str(error)) from error


def _finite(value: Any) -> Any:
    """Without NaN and infinities, which a diverging job writes and JSON answers cannot carry."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items() if not _is_infinite(item)}
    if isinstance(value, list):
        return [_finite(item) for item in value if not _is_infinite(item)]
    return value


def _is_infinite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
