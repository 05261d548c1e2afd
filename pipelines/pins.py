"""What a job has found once and goes by ever after: its corpus, and copies of the weights it starts from.

The first attempt writes down which corpus it prepared, and keeps copies of weights in the job's own folder. Later
attempts go by these, and so does a retry by those of the job it goes on with, as far as its spec says the same: whether
an alias moves or a source goes meanwhile, they train on the same text from the same weights.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

from pydantic import ValidationError

from pipelines import storage
from pipelines.job import JobDirectory
from pipelines.origin import origins, take_over_folder
from pipelines.specs.documents import CORPUS_FILE, CorpusPin
from pipelines.specs.jobs import JobSpec
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.search import SearchSpec
from pipelines.specs.spec_errors import SpecError
from pipelines.specs.trials import trial_spec
from pipelines.storage.artifacts import MANIFEST_FILE

log = logging.getLogger(__name__)


class JobPins:
    """Where the corpus of one job is written down."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory

    def read(self, words: str) -> CorpusPin | None:
        """The corpus that this job, or one it is a retry of, has prepared of the same words; None without one.

        Raises:
            StorageError: the storage does not answer.
        """
        for directory in (self._directory, *origins(self._directory)):
            pin = _read(directory.path(CORPUS_FILE))
            if pin is not None and pin.words == words:
                return pin
        return None

    def write(self, pin: CorpusPin) -> None:
        """Write down which corpus this job trains on.

        Raises:
            StorageError: the storage cannot be written.
        """
        if _read(self._directory.path(CORPUS_FILE)) != pin:
            storage.write_json(self._directory.path(CORPUS_FILE), pin.model_dump(mode="json"))


def said_of_start(spec: JobSpec) -> Any:
    """What decides the copy of the weights that pretraining, or each trial of a search, starts from."""
    base = trial_spec(spec, {}) if isinstance(spec, SearchSpec) else cast(PretrainSpec, spec)
    return base.initialization, base.model, base.objective, base.tokenizer


def take_over_copy(directory: JobDirectory, said: Callable[[JobSpec], Any], *parts: str) -> bool:
    """Copy a folder of weights that a job's origins have kept, unless the job has it itself.

    Args:
        directory: of the job.
        said: what a spec says of these weights; the copy of a job that says otherwise is left.
        parts: the folder's place below the job.

    Returns:
        Whether a copy was taken over.

    Raises:
        StorageError: the storage does not answer.
    """
    if storage.exists(directory.path(*parts, MANIFEST_FILE)):
        return False
    wanted = said(directory.read_spec())
    for origin in origins(directory):
        if not storage.exists(origin.path(*parts, MANIFEST_FILE)) or _said(origin, said) != wanted:
            continue
        take_over_folder(directory, origin, *parts, last=MANIFEST_FILE)
        log.info("weights_taken_over", extra={"folder": "/".join(parts), "job_id": origin.job_id})
        return True
    return False


def _said(origin: JobDirectory, said: Callable[[JobSpec], Any]) -> Any:
    try:
        return said(origin.read_spec())
    except (SpecError, AttributeError):  # of another version, or of another kind
        return None


def _read(uri: str) -> CorpusPin | None:
    if not storage.exists(uri):
        return None
    try:
        return CorpusPin.model_validate(storage.read_json(uri))
    except ValidationError as error:  # of another version
        log.warning("corpus_pin_not_understood", extra={"uri": uri, "reason": str(error)[:300]})
        return None
