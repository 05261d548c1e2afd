"""A corpus from sources to shards, on a real Ray cluster."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipelines import storage
from pipelines.corpus import texts as texts_stage
from pipelines.corpus import tokens as tokens_stage
from pipelines.corpus.prepare import prepare_corpus
from pipelines.corpus.texts import Texts
from pipelines.errors import CorpusError, JobCancelled, StorageError
from pipelines.rows.loader import TrainingRows, ValidationRows, read_unigram_counts
from pipelines.specs.corpus import (
    CleaningSpec,
    CorpusSpec,
    JsonlSource,
    ParquetSource,
    PretrainedTokenizerSpec,
    PythonDocsSource,
    TextSource,
    TokenizerSpec,
    WordPieceSpec,
)
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.tokenizer import load_tokenizer

pytestmark = [
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("default"),  # Ray Data warns of itself, on its own threads
]

TOKENIZER = WordPieceSpec(vocab_size=600, limit_alphabet=100)


def prepare(
    spec: CorpusSpec, root: Path | str, tokenizer: TokenizerSpec = TOKENIZER, owner: str = "test"
) -> PreparedCorpus:
    return prepare_corpus(spec, tokenizer, str(root), lambda message, fraction: None, owner)


def documents_of(corpus: PreparedCorpus, split: str) -> list[str]:
    """The documents as the shards hold them."""
    tokenizer = load_tokenizer(corpus.tokenizer_uri)
    tokens, starts, size = [], [], 0
    for shard in corpus.shards_of(split):
        uri = storage.join(corpus.uri, shard.name)
        tokens.append(np.frombuffer(storage.read_bytes(f"{uri}.bin"), corpus.token_dtype))
        starts.append(np.frombuffer(storage.read_bytes(f"{uri}.docs"), np.int64) + size)
        size += shard.num_tokens
    documents = np.split(np.concatenate(tokens), np.concatenate(starts)[1:])
    assert all(ids[-1] == corpus.special.sep for ids in documents)
    return [tokenizer.decode(ids[:-1].tolist()) for ids in documents]


def read_texts(root: Path | str) -> list[str]:
    """What stage 1 wrote, in order, duplicates left in."""
    (uri,) = storage.list_directory(storage.join(str(root), "texts"))
    names = [part.name for part in Texts.read(uri).parts]
    return [text for name in names for text in pq.read_table(f"{uri}/{name}")["text"].to_pylist()]


def in_this_process(items: Sequence[Any], function: Callable[[Any], Iterator[Any]], _: Any = None) -> Iterator[Any]:
    """What `map_in_order` means, as a loop."""
    for item in items:
        yield from function(item)


@pytest.fixture
def mixed(tmp_path: Path, documents: list[str]) -> CorpusSpec:
    """One source of every kind, with documents that stand in several."""
    root = tmp_path / "mixed sources"
    root.mkdir()
    lines = [json.dumps({"text": text, "n": 1}) + "\n" for text in documents]
    (root / "a.jsonl").write_text("".join(lines[:20]))
    (root / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[10:40]).encode()))
    (root / "c.jsonl.zst").write_bytes(zstandard.compress("".join(lines[40:50]).encode()))
    pq.write_table(pa.table({"body": documents[45:60]}), root / "d.parquet")
    (root / "e 1.txt").write_text("\n\n".join(documents[60:62]))
    return CorpusSpec(
        sources=(
            JsonlSource(uris=(f"{root}/*.jsonl*",)),
            ParquetSource(uris=f"{root}/d.parquet", text_field="body", weight=0.5),
            TextSource(uris=(root / "e 1.txt").as_uri(), document="paragraph"),
        ),
        validation_fraction=0.2,
    )


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pieces, parts and shards out of little text. Shards are cut here in the driver, parts in `_write_piece`."""
    monkeypatch.setattr(tokens_stage, "SHARD_TOKENS", 20_000)


def test_every_kind_of_source_is_read_in_order_without_copies(
    mixed: CorpusSpec, tmp_path: Path, documents: list[str], small_parts: None
) -> None:
    corpus = prepare(mixed, tmp_path)
    paragraphs = [p.strip() for p in "\n\n".join(documents[60:62]).split("\n\n")]
    expected = [text.strip() for text in documents[:60]]
    expected += [p for p in dict.fromkeys(paragraphs) if len(p) >= 50]
    assert list(dict.fromkeys(read_texts(tmp_path))) == expected
    assert corpus.counts["duplicates"] >= 15
    assert corpus.num_bytes == sum(len(text.encode()) for text in expected)
    assert corpus.num_train_documents + corpus.num_validation_documents == len(expected)
    assert not corpus.was_found
    together = documents_of(corpus, "train") + documents_of(corpus, "validation")
    assert len(set(together)) == len(together) == len(expected)
    assert len(corpus.shards_of("train", 0)) > 1
    assert {shard.num_tokens for shard in corpus.shards_of("train", 0)[:-1]} == {20_000}
    assert sum(corpus.source_train_tokens) == corpus.num_train_tokens
    assert len(corpus.source_train_tokens) == 3


def test_the_bytes_do_not_depend_on_the_cluster(
    mixed: CorpusSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray twice, and a plain loop that takes the pieces one by one: the same shards and texts."""
    with_ray = [prepare(mixed, tmp_path / name) for name in ("one", "two")]
    monkeypatch.setattr(texts_stage, "map_in_order", in_this_process)
    monkeypatch.setattr(tokens_stage, "map_in_order", in_this_process)
    alone = prepare(mixed, tmp_path / "alone")
    assert with_ray[0].shards == with_ray[1].shards == alone.shards
    assert with_ray[0].digest == alone.digest
    trees = [
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("one", "two", "alone")
    ]
    assert trees[0] == trees[1] == trees[2]
    monkeypatch.setattr(texts_stage, "PART_BYTES", 3000)
    assert prepare(mixed, tmp_path / "fine").shards == alone.shards


def test_the_second_call_prepares_nothing(mixed: CorpusSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(mixed, tmp_path)
    monkeypatch.setattr(texts_stage, "map_in_order", None)  # nothing may even try
    monkeypatch.setattr(tokens_stage, "map_in_order", None)
    second = prepare(mixed, tmp_path)
    assert second == first
    assert (first.was_found, second.was_found) == (False, True)
    heavier = mixed.model_copy(
        update={"sources": (mixed.sources[0].model_copy(update={"weight": 3.0}), *mixed.sources[1:])}
    )
    assert prepare(heavier, tmp_path).was_found  # weights are for the loader


def test_another_tokenizer_reuses_the_texts(mixed: CorpusSpec, tmp_path: Path) -> None:
    first = prepare(mixed, tmp_path)
    second = prepare(mixed, tmp_path, WordPieceSpec(vocab_size=300, limit_alphabet=100))
    assert first.digest != second.digest
    assert len(storage.list_directory(str(tmp_path / "texts"))) == 1
    vocabulary = PretrainedTokenizerSpec(uri=first.tokenizer_uri)
    assert prepare(mixed, tmp_path, vocabulary).shards == first.shards


def test_a_changed_file_is_another_corpus(
    write_jsonl: Callable[..., Path], documents: list[str], tmp_path: Path
) -> None:
    path = write_jsonl("x.jsonl", documents[:10])
    spec = CorpusSpec(sources=(JsonlSource(uris=str(path)),))
    first = prepare(spec, tmp_path)
    write_jsonl("x.jsonl", documents[:11])
    assert prepare(spec, tmp_path).digest != first.digest


BROKEN = b"".join(
    line + b"\n"
    for line in (
        b'{"text": "' + b"a fine document. " * 10 + b'"}',
        b'{"text": "broken \xff"}',
        b"",
        b'{"text": ',
        b'{"title": "no text"}',
        b'{"text": 1}',
        b'{"text": "n\\u0000l"}',
        b'{"text": "short"}',
        b'{"text": "' + b"another document. " * 10 + b'"}',
    )
)
LINES = ("2: broken_utf8", "4: malformed_json", "5: missing_field", "6: not_a_string", "7: nul_character")


def test_malformed_records_are_counted_and_told_by_file_and_line(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "empty.jsonl"):
        (tmp_path / name).write_bytes(BROKEN.replace(b"document", name.encode()) if name != "empty.jsonl" else b"")
    source = JsonlSource(uris=f"{tmp_path}/*.jsonl")
    with pytest.raises(
        CorpusError, match=r"10 of 16 records are malformed \(2 broken utf8, 2 malformed json"
    ) as caught:
        prepare(CorpusSpec(sources=(source,)), tmp_path / "out")
    report = caught.value.report
    assert [line.split(": byte")[0] for line in report[:1]] == [f"{tmp_path}/a.jsonl:{LINES[0]}"]
    places = [f"{tmp_path}/{name}:{line}" for name in ("a.jsonl", "b.jsonl") for line in LINES]
    assert all(line.startswith(place) for line, place in zip(report, places, strict=True))
    assert report[0] in str(caught.value)
    corpus = prepare(CorpusSpec(sources=(source,), max_bad_record_fraction=0.7), tmp_path / "out")
    kinds = ("broken_utf8", "malformed_json", "missing_field", "not_a_string", "nul_character")
    assert [corpus.counts[f"bad_{kind}"] for kind in kinds] == [2] * 5
    expected = {"records": 16, "bad_records": 10, "too_short": 2, "empty_files": 1, "files": 3, "duplicates": 0}
    assert {name: corpus.counts[name] for name in expected} == expected
    assert corpus.report == report


def test_lines_are_told_in_files_read_by_ranges(
    tmp_path: Path, documents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.corpus import sources

    monkeypatch.setattr(sources, "RANGE_BYTES", 10_000)
    lines = [json.dumps({"text": text}) for text in documents]
    lines[30] = "broken"
    lines[55] = "broken"
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    spec = CorpusSpec(sources=(JsonlSource(uris=str(tmp_path / "x.jsonl")),), max_bad_record_fraction=0)
    with pytest.raises(CorpusError) as caught:
        prepare(spec, tmp_path / "out")
    assert [line.split(":")[1] for line in caught.value.report] == ["31", "56"]


def test_the_report_is_capped_and_the_counts_are_not(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("broken\n" * 1000)
    with pytest.raises(CorpusError, match="1000 of 1000") as caught:
        prepare(CorpusSpec(sources=(JsonlSource(uris=str(tmp_path / "x.jsonl")),)), tmp_path / "out")
    assert len(caught.value.report) == 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "all 1 files of corpus.sources are empty"),
        (b"\n \n", "no document is left of 0 records"),
        (b"short\n", "no document is left of 1 records: 0 malformed, 1 too short"),
        (b"one document and no other, which is fifty characters.\n" * 3, "a single document"),
    ],
)
def test_too_little_text_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        prepare(CorpusSpec(sources=(TextSource(uris=str(tmp_path / "x.txt"), document="line"),)), tmp_path / "out")


def test_a_document_never_changes_sides(write_jsonl: Callable[..., Path], documents: list[str], tmp_path: Path) -> None:
    half, whole = write_jsonl("half.jsonl", documents[:40]), write_jsonl("whole.jsonl", documents[::-1])
    vocabulary = PretrainedTokenizerSpec(
        uri=prepare(
            CorpusSpec(sources=(JsonlSource(uris=str(whole)),), validation_fraction=0.3), tmp_path
        ).tokenizer_uri
    )
    small, large = (
        prepare(CorpusSpec(sources=(JsonlSource(uris=str(path)),), validation_fraction=0.3), tmp_path, vocabulary)
        for path in (half, whole)
    )
    assert set(documents_of(small, "train")) < set(documents_of(large, "train"))
    assert set(documents_of(small, "validation")) < set(documents_of(large, "validation"))
    assert 0.1 < large.num_validation_documents / len(documents) < 0.5


def test_a_tiny_corpus_holds_one_document_out(
    write_jsonl: Callable[..., Path], documents: list[str], tmp_path: Path
) -> None:
    spec = CorpusSpec(sources=(JsonlSource(uris=str(write_jsonl("x.jsonl", documents[:3]))),), validation_fraction=1e-9)
    corpus = prepare(spec, tmp_path)
    assert (corpus.num_train_documents, corpus.num_validation_documents) == (2, 1)
    assert corpus.counts["validation_forced"] == 1


def test_long_documents_and_special_words_are_only_text(tmp_path: Path, documents: list[str]) -> None:
    long = " ".join(documents) * 10 + "x" * 300_000
    assert len(long) > 4_000_000
    (tmp_path / "a.txt").write_text(long)
    (tmp_path / "b.txt").write_text("this text says [SEP] and [MASK] and [CLS] and is long enough to be kept by all")
    corpus = prepare(CorpusSpec(sources=(TextSource(uris=f"{tmp_path}/*.txt"),)), tmp_path / "out")
    counts = read_unigram_counts(corpus)
    assert counts.sum() == corpus.num_train_tokens
    assert counts[corpus.special.sep] == corpus.num_train_documents == 1
    assert counts[corpus.special.mask] == counts[corpus.special.cls] == counts[corpus.special.pad] == 0
    assert corpus.num_train_tokens + corpus.num_validation_tokens > 500_000


def test_copies_are_kept_on_request(write_jsonl: Callable[..., Path], documents: list[str], tmp_path: Path) -> None:
    path = write_jsonl("x.jsonl", documents[:10] * 2)
    spec = CorpusSpec(sources=(JsonlSource(uris=str(path)),), cleaning=CleaningSpec(deduplicate=False))
    corpus = prepare(spec, tmp_path)
    assert corpus.num_train_documents + corpus.num_validation_documents == 20


def test_rows_come_out_of_a_prepared_corpus(mixed: CorpusSpec, tmp_path: Path) -> None:
    corpus = prepare(mixed, tmp_path)
    weights = tuple(source.weight for source in mixed.sources)
    rows = TrainingRows(corpus, weights, 32, seed=1).rows(0, np.arange(8), 8)
    assert rows.shape == (8, 32)
    assert (rows < corpus.vocab_size).all()
    assert not np.isin(rows[:, 1:-1], [corpus.special.pad, corpus.special.cls, corpus.special.mask]).any()
    assert ValidationRows(corpus, 32, 5).rows([0, 4]).shape == (2, 32)


def test_everything_can_live_in_a_bucket(bucket: str, documents: list[str], tmp_path: Path) -> None:
    source_uri = f"{bucket}/in/{tmp_path.name}/some texts.jsonl"
    storage.write_bytes(source_uri, "".join(json.dumps({"text": text}) + "\n" for text in documents).encode())
    spec = CorpusSpec(sources=(JsonlSource(uris=f"{bucket}/in/{tmp_path.name}/*.jsonl"),))
    remote = prepare(spec, f"{bucket}/out/{tmp_path.name}")
    local = prepare(spec, tmp_path)
    assert remote.shards == local.shards
    assert prepare(spec, f"{bucket}/out/{tmp_path.name}/").was_found
    one, other = (TrainingRows(corpus, (1.0,), 32, 1).rows(0, np.arange(8), 8) for corpus in (remote, local))
    assert np.array_equal(one, other)


def test_an_absent_source_is_told_at_once(tmp_path: Path, bucket: str) -> None:
    for uri in (str(tmp_path / "nothing.jsonl"), f"{bucket}/nothing.jsonl"):
        with pytest.raises(StorageError, match="no such file"):
            prepare(CorpusSpec(sources=(JsonlSource(uris=uri),)), tmp_path)


def test_a_file_that_goes_away_is_told(write_jsonl: Callable[..., Path], documents: list[str], tmp_path: Path) -> None:
    path = write_jsonl("x.jsonl", documents)

    def report(message: str, fraction: float | None) -> None:
        path.unlink(missing_ok=message.startswith("reading"))

    write_jsonl("x.jsonl", documents)
    spec = CorpusSpec(sources=(JsonlSource(uris=str(path)),))
    with pytest.raises(StorageError, match="no such file"):
        prepare_corpus(spec, TOKENIZER, str(tmp_path), report, "test")


def test_concurrent_preparers_do_the_work_once(mixed: CorpusSpec, tmp_path: Path) -> None:
    corpora: dict[str, PreparedCorpus] = {}
    somebody_waits = threading.Event()

    def hear(what: str, _: float | None) -> None:
        """Whoever may work goes on when the other has come and waits."""
        if "waiting for" in what:
            somebody_waits.set()
        elif what != "listing the sources":  # which needs no leave
            assert somebody_waits.wait(120), "the second preparer never waited for the first"

    def work(owner: str) -> None:
        corpora[owner] = prepare_corpus(mixed, TOKENIZER, str(tmp_path), hear, owner)

    threads = [threading.Thread(target=work, args=(owner,)) for owner in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert corpora["one"] == corpora["two"]
    assert sum(corpus.was_found for corpus in corpora.values()) == 1
    assert storage.list_directory(str(tmp_path / "leases")) == []


def test_a_lease_of_the_dead_is_taken_over(mixed: CorpusSpec, tmp_path: Path) -> None:
    first = prepare(mixed, tmp_path / "first")
    lease = tmp_path / "second/leases" / f"corpora-{first.digest}.json"
    storage.write_json(str(lease), {"owner": "gone", "token": "x", "heartbeat_at": time.time() - 100})
    assert prepare(mixed, tmp_path / "second").shards == first.shards


def test_a_cancelled_preparation_stops_and_can_be_repeated(mixed: CorpusSpec, tmp_path: Path) -> None:
    def report(message: str, fraction: float | None) -> None:
        if message.startswith("tokenising"):
            raise JobCancelled

    with pytest.raises(JobCancelled):
        prepare_corpus(mixed, TOKENIZER, str(tmp_path), report, "test")
    assert not prepare(mixed, tmp_path).was_found


def test_progress_grows_to_the_end(mixed: CorpusSpec, tmp_path: Path) -> None:
    said: list[tuple[str, float | None]] = []
    prepare_corpus(mixed, TOKENIZER, str(tmp_path), lambda *what: said.append(what), "test")
    fractions = [fraction for _, fraction in said if fraction is not None]
    assert fractions == sorted(fractions)
    assert 0.5 <= fractions[-1] <= 1.0
    assert {what.split(":")[0] for what, _ in said} == {
        "listing the sources", "reading and cleaning", "training the tokenizer", "tokenising"}  # fmt: skip


def test_the_documentation_of_packages(tmp_path: Path) -> None:
    source = PythonDocsSource(packages=("numpy", "pytest"), include_standard_library=False)
    corpus = prepare(CorpusSpec(sources=(source,)), tmp_path)
    assert corpus.num_bytes > 1_000_000
    assert any("permutation" in text for text in read_texts(tmp_path))


@pytest.mark.shared
def test_the_shared_sample(tmp_path: Path, shared_data: Path) -> None:
    source = JsonlSource(uris=str(shared_data / "corpus/tiny.jsonl"))
    corpus = prepare(CorpusSpec(sources=(source,)), tmp_path, WordPieceSpec(vocab_size=4096))
    assert corpus.counts["records"] == 472
    assert corpus.vocab_size == 4096
    assert 400_000 < corpus.num_train_tokens < 700_000
