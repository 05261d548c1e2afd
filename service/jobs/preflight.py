"""What can be told of a job before it is taken: that its files are there, and that the cluster is large enough."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipelines import storage
from pipelines.errors import StorageError
from pipelines.specs.compute import WorkerSpec
from pipelines.specs.corpus import PretrainedTokenizerSpec, PythonDocsSource
from pipelines.specs.evaluate import EvaluateSpec
from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.initialization import named_files
from pipelines.specs.jobs import JobSpec
from pipelines.specs.plans import evaluation_files, finetuning_files, labelled_files, search_files
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.search import SearchSpec
from pipelines.specs.trials import base_spec
from pipelines.storage.text_size import text_bytes
from service.errors import CorpusUnreadableError, Fault, InsufficientResourcesError
from service.records import ClusterStatus

Refusal = Callable[[str, storage.FoundFile], str | None]
"""Why a file that a URI led to may not be read."""
NUM_THREADS = 8
MAX_SHOWN_FAULTS = 20


@dataclass(frozen=True)
class _Named:
    """A URI and where it stands in the spec."""

    pointer: str
    uri: str


def check_capacity(spec: JobSpec, cluster: ClusterStatus | None) -> None:
    """Compare a job's workers with the cluster as it was last seen; a cluster of unknown size takes any job.

    Raises:
        InsufficientResourcesError: the job could never start.
    """
    if cluster is None or not cluster.is_ray_reachable:
        return
    sections: dict[str, WorkerSpec] = {}
    if isinstance(spec, SearchSpec):
        sections["base.compute"] = base_spec(spec).compute  # of one trial; trials wait for each other
    else:
        sections["compute"] = spec.compute
    if isinstance(spec, PretrainSpec) and spec.probe is not None:
        sections["probe.compute"] = spec.probe.compute
    faults = [fault for section, compute in sections.items() for fault in _too_large(section, compute, cluster)]
    if faults:
        raise InsufficientResourcesError("; ".join(f"{fault.rule}, got {fault.value}" for fault in faults), faults)


def _too_large(section: str, compute: WorkerSpec, cluster: ClusterStatus) -> Iterator[Fault]:
    pointer = f"/spec/{section.replace('.', '/')}/num_workers"
    for name, wanted, there in (
        ("CPU", compute.num_cpus, cluster.num_cpus),
        ("GPU", compute.num_gpus, cluster.num_gpus),
    ):
        if there is not None and wanted > there:
            rule = f"{section}.num_workers × {name.lower()}s_per_worker must be at most the cluster's {there:g} {name}s"
            yield Fault(pointer, rule, f"{wanted:g}")


def check_sources(
    spec: JobSpec, timeout_seconds: float, refusal: Refusal | None = None, kept: Sequence[str] = ()
) -> int | None:
    """Look at every file the spec names; the size in bytes of what is trained on, or None if it cannot be told without
    reading it. Of a corpus it is that of the text, which compressed files are taken to hold; of all else that of the
    files as stored. `refusal` says of a file that was found why it may not be read, or None. Below the pointers in
    `kept` nothing is looked at: the job has copies of its own.

    Raises:
        CorpusUnreadableError: one is absent, refused, empty, closed to us, or does not answer in time.
    """
    if isinstance(spec, FinetuneSpec):
        return _size_of_data(finetuning_files(spec), ("/spec/model/",), timeout_seconds, refusal, kept)
    if isinstance(spec, EvaluateSpec):
        models = ("/spec/discriminator/", "/spec/generator/")
        size = _size_of_data(evaluation_files(spec), models, timeout_seconds, refusal, kept)
        sources = spec.unseen_text.sources.values() if spec.unseen_text is not None else ()
        return None if any(isinstance(source, PythonDocsSource) for source in sources) else size
    if isinstance(spec, SearchSpec):
        objective_files = [_Named(f"/spec{pointer}", uri) for pointer, uri in search_files(spec)]
        return _check_pretraining(base_spec(spec), "/spec/base", objective_files, timeout_seconds, refusal, kept)
    return _check_pretraining(spec, "/spec", [], timeout_seconds, refusal, kept)


def _check_pretraining(
    spec: PretrainSpec,
    pointer: str,
    others: list[_Named],
    timeout_seconds: float,
    refusal: Refusal | None,
    kept: Sequence[str],
) -> int | None:
    """Look at a corpus and what goes with it; bytes of its text, where they are known."""
    corpus = list(_corpus_uris(spec, pointer))
    if isinstance(spec.tokenizer, PretrainedTokenizerSpec):
        others.append(_Named(f"{pointer}/tokenizer/uri", spec.tokenizer.uri))
    if spec.initialization is not None:
        files = named_files(spec.initialization)
        others += [_Named(f"{pointer}/initialization/{field}", uri) for field, uri in files.items()]
    if spec.probe is not None:
        for name, task in spec.probe.tasks.items():
            others += [_Named(*named) for named in labelled_files(f"{pointer}/probe/tasks/{name}", task)]
    corpus, others = ([one for one in named if not _is_kept(one, kept)] for named in (corpus, others))
    found = _look_at([*corpus, *others], timeout_seconds, refusal)
    texts = [file for named in corpus for file in found[named]]
    has_documentation = any(isinstance(source, PythonDocsSource) for source in spec.corpus.sources)
    return text_bytes(texts) if _have_sizes(texts) and not has_documentation else None


def _size_of_data(
    named: Iterable[tuple[str, str]],
    of_models: tuple[str, ...],
    timeout_seconds: float,
    refusal: Refusal | None,
    kept: Sequence[str],
) -> int | None:
    """Look at all files; the size of those that are no model's."""
    every = [_Named(f"/spec{pointer}", uri) for pointer, uri in named]
    every = [one for one in every if not _is_kept(one, kept)]
    found = _look_at(every, timeout_seconds, refusal)
    files = [file for one in every if not one.pointer.startswith(of_models) for file in found[one]]
    return sum(file.size_bytes for file in files) if _have_sizes(files) else None


def _is_kept(named: _Named, kept: Sequence[str]) -> bool:
    return named.pointer.startswith(tuple(kept))


def _have_sizes(files: Sequence[storage.FoundFile]) -> bool:
    """Whether there are files, and the size of each is known."""
    return len(files) > 0 and all(file.size_bytes >= 0 for file in files)


def _corpus_uris(spec: PretrainSpec, pointer: str) -> Iterator[_Named]:
    for index, source in enumerate(spec.corpus.sources):
        if not isinstance(source, PythonDocsSource):
            for number, uri in enumerate(source.uris):
                yield _Named(f"{pointer}/corpus/sources/{index}/uris/{number}", uri)


def _look_at(
    uris: Sequence[_Named], timeout_seconds: float, refusal: Refusal | None
) -> dict[_Named, list[storage.FoundFile]]:
    deadline = time.monotonic() + timeout_seconds
    answers = _in_threads(lambda uri: _files_or_reason(uri, refusal), uris)
    found: dict[_Named, list[storage.FoundFile]] = {}
    faults: list[Fault] = []
    try:
        while len(found) + len(faults) < len(uris) and len(faults) < MAX_SHOWN_FAULTS:
            named, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(answer, str):
                faults.append(Fault(named.pointer, answer, named.uri[:500]))
            else:
                found[named] = answer
    except queue.Empty:
        silent = next(named for named in uris if named not in found and all(f.pointer != named.pointer for f in faults))
        faults.append(Fault(silent.pointer, f"must answer within {timeout_seconds:g} seconds", silent.uri[:500]))
    finally:
        answers.abandoned.set()
    if faults:
        faults.sort(key=lambda fault: [int(part) if part.isdigit() else -1 for part in fault.pointer.split("/")])
        detail = "; ".join(f"{fault.value}: {fault.rule}" for fault in faults[:3])
        raise CorpusUnreadableError(f"{detail}.", faults)
    return found


def _files_or_reason(uri: str, refusal: Refusal | None) -> list[storage.FoundFile] | str:
    """What a URI names, or in words why it cannot be read."""
    try:
        files = _expanded(uri)
        reasons = (refusal(uri, file) for file in files) if refusal is not None else ()
        if (reason := next(filter(None, reasons), None)) is not None:
            return reason
    except StorageError as error:
        return error.reason
    except (OSError, ValueError, ImportError) as error:
        return " ".join(str(error).split()) or type(error).__name__
    return "must not be empty" if all(file.size_bytes == 0 for file in files) else files


def _expanded(uri: str) -> list[storage.FoundFile]:
    """What a URI names. A checkpoint of TensorFlow's is named by what the names of its files begin with."""
    try:
        return storage.expand(uri)
    except StorageError:
        index = uri.rstrip("/") + ".index"
        if not storage.exists(index):
            raise
        return storage.expand(index)


class _Answers(queue.SimpleQueue[tuple[_Named, list[storage.FoundFile] | str]]):
    def __init__(self) -> None:
        super().__init__()
        self.abandoned = threading.Event()


def _in_threads(look: Callable[[str], list[storage.FoundFile] | str], uris: Sequence[_Named]) -> _Answers:
    """Look at URIs side by side. The threads are daemons, so a store that never answers holds up nobody's exit."""
    answers, waiting = _Answers(), iter(uris)
    lock = threading.Lock()

    def work() -> None:
        while not answers.abandoned.is_set():
            with lock:
                named = next(waiting, None)
            if named is None:
                return
            try:
                answer = look(named.uri)
            except Exception as error:  # noqa: BLE001 - a driver's surprise is an answer too, not a silent thread
                answer = f"cannot be read: {type(error).__name__}"
            answers.put((named, answer))

    for number in range(min(NUM_THREADS, len(uris))):
        threading.Thread(target=work, name=f"preflight-{number}", daemon=True).start()
    return answers
