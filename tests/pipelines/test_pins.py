"""What later attempts and retries go by, whatever becomes of sources and models meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_origin import folder_of

from pipelines import storage
from pipelines.claims import claim
from pipelines.corpus.prepare import prepare_corpus, resolve_corpus
from pipelines.corpus.sources import take_inventory
from pipelines.errors import CorpusError, JobSuperseded, StorageError
from pipelines.job import JobDirectory
from pipelines.origin import close_origins
from pipelines.pins import JobPins, take_over_copy
from pipelines.specs.corpus import CorpusSpec, TextSource, WordPieceSpec
from pipelines.specs.evaluate import EvaluateSpec
from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.jobs import JobSpec
from pipelines.specs.parsing import resolve_spec
from pipelines.storage.artifacts import PreparedCorpus, SpecialTokenIds

TOKENIZER = WordPieceSpec(vocab_size=200, limit_alphabet=60)


def source_of(tmp_path: Path) -> Path:
    path = tmp_path / "texts-of-mine" / "one.txt"
    path.parent.mkdir()
    path.write_text("\n".join(f"document {number} tells of bread and of wine" for number in range(400)))
    return path


def spec_of(tmp_path: Path, fraction: float = 0.1) -> CorpusSpec:
    source = TextSource(uris=(str(tmp_path / "texts-of-mine" / "*.txt"),), document="line")
    return CorpusSpec(sources=(source,), validation_fraction=fraction)


def prepare(tmp_path: Path, directory: JobDirectory, fraction: float = 0.1) -> PreparedCorpus:
    owner, pins = f"{directory.job_id}-a1", JobPins(directory)
    return prepare_corpus(
        spec_of(tmp_path, fraction), TOKENIZER, str(tmp_path), lambda message, share: None, owner, pins
    )


def prepared_elsewhere(tmp_path: Path) -> str:
    """A complete corpus of the sources as they are now; its digest."""
    spec = spec_of(tmp_path)
    digest = resolve_corpus(spec, TOKENIZER, take_inventory(spec)).corpus
    corpus = PreparedCorpus(
        uri=str(tmp_path / "corpora" / digest),
        digest=digest,
        tokenizer_uri=str(tmp_path / "tokenizers" / "of-it"),
        vocab_size=64,
        special=SpecialTokenIds(0, 1, 2, 3, 4),
        token_dtype="uint16",
        source_train_tokens=(50,),
        num_train_tokens=50,
        num_validation_tokens=10,
        num_train_documents=5,
        num_validation_documents=1,
        num_bytes=300,
        counts={"records": 6, "bad_records": 0},
        shards=(),
    )
    storage.write_json(f"{corpus.uri}/manifest.json", corpus.to_manifest())
    return digest


def test_a_later_attempt_trains_on_the_first_ones_corpus_though_the_source_has_grown(tmp_path: Path) -> None:
    source, directory = source_of(tmp_path), folder_of(tmp_path, "job")
    first = prepared_elsewhere(tmp_path)
    assert prepare(tmp_path, directory).digest == first
    source.write_text(source.read_text() + "\none more document")
    grown = prepared_elsewhere(tmp_path)
    assert prepare(tmp_path, directory).digest == first
    assert prepare(tmp_path, folder_of(tmp_path, "other")).digest == grown != first


def test_a_retry_of_a_retry_needs_no_source_that_is_gone(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    first = prepared_elsewhere(tmp_path)
    prepare(tmp_path, folder_of(tmp_path, "first"))
    source.unlink()
    folder_of(tmp_path, "second", "first")
    assert prepare(tmp_path, folder_of(tmp_path, "third", "second")).digest == first
    shutil.rmtree(tmp_path / "jobs" / "first")
    assert prepare(tmp_path, JobDirectory(str(tmp_path / "jobs" / "third"))).digest == first


def test_a_corpus_that_can_no_longer_be_had_is_refused_and_not_replaced(tmp_path: Path) -> None:
    source, directory = source_of(tmp_path), folder_of(tmp_path, "job")
    first = prepared_elsewhere(tmp_path)
    prepare(tmp_path, directory)
    shutil.rmtree(tmp_path / "corpora")
    assert prepared_elsewhere(tmp_path) == first  # the same sources give the same
    assert prepare(tmp_path, directory).digest == first
    shutil.rmtree(tmp_path / "corpora")
    source.write_text(source.read_text() + "\nmore")
    prepared_elsewhere(tmp_path)
    with pytest.raises(CorpusError, match="electra clone"):
        prepare(tmp_path, directory)


def test_a_retry_that_says_otherwise_of_its_corpus_looks_at_the_sources(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    prepared_elsewhere(tmp_path)
    prepare(tmp_path, folder_of(tmp_path, "old"))
    source.unlink()
    with pytest.raises(StorageError):
        prepare(tmp_path, folder_of(tmp_path, "new", "old"), fraction=0.2)


def written(directory: JobDirectory, spec: JobSpec) -> JobDirectory:
    directory.write_spec(spec)
    return directory


def finetuning(**model: object) -> FinetuneSpec:
    spec = resolve_spec(
        {
            "kind": "finetune",
            "name": "tones",
            "model": {"type": "registered", "name": "news", **model},
            "task": {"type": "classification", "data": {"train": "a.csv", "validation": "b.csv"}},
        }
    )
    assert isinstance(spec, FinetuneSpec)
    return spec


def model_of(spec: JobSpec) -> object:
    assert isinstance(spec, FinetuneSpec | EvaluateSpec)
    return getattr(spec, "model", None)


def keep_base(directory: JobDirectory) -> None:
    folder = Path(directory.path("base"))
    folder.mkdir()
    for name in ("manifest.json", "weights.safetensors"):
        (folder / name).write_text(f"{name} of {directory.job_id}")


def test_a_retry_starts_from_the_copy_of_the_model_that_the_old_job_kept(tmp_path: Path) -> None:
    keep_base(written(folder_of(tmp_path, "old"), finetuning(alias="newest")))
    new = written(folder_of(tmp_path, "new", "old"), finetuning(alias="newest"))
    assert take_over_copy(new, model_of, "base")
    shutil.rmtree(tmp_path / "jobs" / "old")
    assert Path(new.path("base", "weights.safetensors")).read_text() == "weights.safetensors of old"
    assert not take_over_copy(new, model_of, "base")  # it has it itself


def test_the_copy_of_another_model_is_left(tmp_path: Path) -> None:
    keep_base(written(folder_of(tmp_path, "old"), finetuning(version=1)))
    new = written(folder_of(tmp_path, "new", "old"), finetuning(version=2))
    assert not take_over_copy(new, model_of, "base")


def test_an_attempt_of_the_old_job_that_still_runs_finds_its_folder_taken(tmp_path: Path) -> None:
    old, new = folder_of(tmp_path, "old"), folder_of(tmp_path, "new", "old")
    close_origins(new)
    assert not Path(old.path("attempt.json")).exists()  # nothing had begun there
    running, _ = claim(old.uri, 3)
    close_origins(new)
    with pytest.raises(JobSuperseded):
        running.check()
    with pytest.raises(JobSuperseded):
        claim(old.uri, 4)
    close_origins(new)
