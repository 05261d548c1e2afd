"""What a retry finds in the folder of the job that it tries again, so that its sources need not be there any more.

`pipelines/pins.py` is the other half: the job itself goes by these copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import structlog

from pipelines import storage
from pipelines.specs.corpus import decisive_words
from pipelines.specs.documents import CORPUS_FILE, CorpusPin
from pipelines.specs.evaluate import EvaluateSpec
from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.jobs import JobSpec
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.search import SearchSpec
from pipelines.specs.trials import base_spec
from pipelines.storage.artifacts import MANIFEST_FILE
from service.jobs.work import read_stored_spec
from service.records import Job
from service.settings import Settings

log = structlog.get_logger(__name__)

MAX_ORIGINS = 100
"""Jobs that are looked through, one the retry of the other."""


def kept_sections(spec: JobSpec, old: Job, get: Callable[[str], Job | None], settings: Settings) -> frozenset[str]:
    """JSON pointers of sections of a spec that its job reads from copies.

    Args:
        spec: of the retry.
        old: the job that is tried again.
        get: finds jobs that it is a retry of itself.
        settings: say where folders lie.
    """
    kept: set[str] = set()
    try:
        for job in _with_origins(old, get):
            kept.update(_kept_by(spec, job, settings))
    except (storage.StorageError, OSError, ValueError) as error:  # then the files have to be there
        log.info("copies_not_looked_at", job_id=old.job_id, reason=str(error)[:300])
    return frozenset(kept)


def _with_origins(job: Job, get: Callable[[str], Job | None]) -> Iterator[Job]:
    for _ in range(MAX_ORIGINS):
        yield job
        before = None if job.retry_of is None else get(job.retry_of)
        if before is None:
            return
        job = before


def _kept_by(spec: JobSpec, job: Job, settings: Settings) -> Iterator[str]:
    theirs = read_stored_spec(job.spec_json)
    folder = settings.job_uri(job.job_id)
    if isinstance(spec, FinetuneSpec) and isinstance(theirs, FinetuneSpec):
        if theirs.model == spec.model and _is_there(folder, "base"):
            yield "/spec/model/"
    elif isinstance(spec, EvaluateSpec) and isinstance(theirs, EvaluateSpec):
        for kind, network in spec.networks.items():
            if theirs.networks.get(kind) == network and _is_there(folder, "networks", kind):
                yield f"/spec/{kind}/"
    elif isinstance(spec, SearchSpec) and isinstance(theirs, SearchSpec):
        yield from _kept_of_pretraining(base_spec(spec), base_spec(theirs), "/spec/base", folder, settings)
    elif isinstance(spec, PretrainSpec) and isinstance(theirs, PretrainSpec):
        yield from _kept_of_pretraining(spec, theirs, "/spec", folder, settings)


def _kept_of_pretraining(
    spec: PretrainSpec, theirs: PretrainSpec, pointer: str, folder: str, settings: Settings
) -> Iterator[str]:
    is_start_kept = _start(spec) == _start(theirs) and _is_there(folder, "initial_weights")
    if is_start_kept:
        yield f"{pointer}/initialization/"
    same = decisive_words(spec.corpus, spec.tokenizer) == decisive_words(theirs.corpus, theirs.tokenizer)
    if same and _is_prepared(folder, settings):
        yield f"{pointer}/corpus/"
        if is_start_kept or spec.initialization is None:
            yield f"{pointer}/tokenizer/"


def _start(spec: PretrainSpec) -> tuple[Any, ...]:
    return spec.initialization, spec.model, spec.objective, spec.tokenizer


def _is_prepared(folder: str, settings: Settings) -> bool:
    uri = storage.join(folder, CORPUS_FILE)
    if not storage.exists(uri):
        return False
    pin = CorpusPin.model_validate(storage.read_json(uri))
    return _is_there(settings.storage_uri, "corpora", pin.corpus)


def _is_there(uri: str, *parts: str) -> bool:
    return storage.exists(storage.join(uri, *parts, MANIFEST_FILE))
