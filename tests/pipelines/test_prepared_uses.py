"""A job notes what it uses before it looks at it, and says what a corpus was made of. Without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines import storage
from pipelines.corpus import texts as texts_stage
from pipelines.corpus import tokens as tokens_stage
from pipelines.corpus.prepare import prepare_corpus
from pipelines.specs.corpus import CorpusSpec, PretrainedTokenizerSpec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.storage.uses import look_at

WORDS = ("the", "sea", "sees", "a", "film")


def in_this_process(items: Sequence[Any], function: Callable[[Any], Iterator[Any]], _: Any = None) -> Iterator[Any]:
    for item in items:
        yield from function(item)


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], PreparedCorpus]:
    """Prepare some lines of text as a job of that name."""
    monkeypatch.setattr(texts_stage, "map_in_order", in_this_process)
    monkeypatch.setattr(tokens_stage, "map_in_order", in_this_process)
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    lines = [" ".join(WORDS[(number + place) % 5] for place in range(20 + number)) for number in range(40)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    source = {"type": "text", "uris": [str(tmp_path / "text.txt")], "document": "line"}
    spec = CorpusSpec.model_validate({"sources": [source], "validation_fraction": 0.2})
    tokenizer = PretrainedTokenizerSpec(uri=str(tmp_path / "vocab.txt"))

    def prepare(owner: str) -> PreparedCorpus:
        return prepare_corpus(spec, tokenizer, str(tmp_path / "storage"), lambda message, fraction: None, owner)

    return prepare


def test_whoever_makes_a_corpus_and_whoever_finds_it_are_noted(prepare: Callable[[str], PreparedCorpus]) -> None:
    made, found = prepare("pt-1-a1"), prepare("pt-2-a3")
    assert (made.was_found, found.was_found) == (False, True)
    assert set(look_at(made.uri).uses) == {"pt-1", "pt-2"}
    (texts,) = storage.list_directory(str(Path(made.uri).parents[1] / "texts"))
    assert set(look_at(texts).uses) == {"pt-1"}


def test_a_corpus_says_what_it_was_made_of(prepare: Callable[[str], PreparedCorpus], tmp_path: Path) -> None:
    uri = prepare("pt-1").uri
    (source,) = storage.read_json(storage.join(uri, "sources.json"))["sources"]
    assert source["size_bytes"] == (tmp_path / "text.txt").stat().st_size
    assert [file["uri"] for file in source["files"]] == [str(tmp_path / "text.txt")]


def test_a_corpus_of_before_is_described_by_whoever_finds_it(prepare: Callable[[str], PreparedCorpus]) -> None:
    sources = Path(prepare("pt-1").uri, "sources.json")
    described = sources.read_bytes()
    sources.unlink()
    assert prepare("pt-2").was_found
    assert sources.read_bytes() == described


def test_the_use_is_noted_before_the_manifest_is_looked_for(
    prepare: Callable[[str], PreparedCorpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a cleaning could find neither the note nor be found by the job."""
    uri = prepare("pt-1").uri
    really_exists = storage.exists
    noted: list[bool] = []

    def exists(place: str) -> bool:
        if place == f"{uri}/manifest.json":
            noted.append("pt-2" in look_at(uri).uses)
        return really_exists(place)

    monkeypatch.setattr(storage, "exists", exists)
    prepare("pt-2")
    assert noted == [True]


def test_a_corpus_whose_manifest_was_taken_away_is_made_anew(prepare: Callable[[str], PreparedCorpus]) -> None:
    first = prepare("pt-1")
    Path(first.uri, "manifest.json").unlink()
    second = prepare("pt-2")
    assert (second.was_found, second.shards) == (False, first.shards)
    assert set(look_at(first.uri).uses) == {"pt-1", "pt-2"}
