"""Minimal pairs and unseen text as a job scores them: files in, counts and figures out."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from finetuning_world import TOKENS, pretrained_folder, write_rows
from mlflow.utils.validation import _validate_metric_name
from plain_scores import plain_score
from toy_network import write_network

from electra_core.config import MaskingConfig
from pipelines import evaluate
from pipelines.errors import CheckpointError, DataError
from pipelines.scoring.networks import KeptNetwork, keep_network
from pipelines.scoring.pairs import read_pairs, score_pairs
from pipelines.scoring.summarise import headline, metrics, short_names, summarise_pairs, summarise_text, table
from pipelines.scoring.text import TextRows, score_text
from pipelines.scoring.units import PairsUnit, TextUnit, score_unit
from pipelines.specs.compute import EvaluateComputeSpec
from pipelines.specs.corpus import CleaningSpec, JsonlSource, PythonDocsSource, TextSource
from pipelines.specs.evaluate import MinimalPairsSpec, UnseenTextSpec
from pipelines.specs.model_source import NetworkFiles
from pipelines.tokenizer import load_tokenizer

CPU = torch.device("cpu")
PAIRS = [
    {"sentence_good": "anna lives in oslo .", "sentence_bad": "anna lives in in .", "phenomenon": "doubling"},
    {"sentence_good": "the film is good .", "sentence_bad": "film the is good .", "phenomenon": "order"},
    {"sentence_good": "Bert lives in Rome .", "sentence_bad": "bert lives in rome ."},
    {"sentence_good": "the house is very [MASK] .", "sentence_bad": "the house very is .", "phenomenon": " order "},
]


def generator_folder(folder: Path, tokens: list[str] = TOKENS) -> Path:
    return write_network(folder, "ElectraForMaskedLM", tokens, seed=1, initializer_range=0.2)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KeptNetwork]:
    root = tmp_path_factory.mktemp("networks")
    folders = {"discriminator": pretrained_folder(root / "d"), "generator": generator_folder(root / "g")}
    return {
        kind: keep_network(kind, NetworkFiles(uri=str(folder)), str(root / "job"), "")
        for kind, folder in folders.items()
    }


def pairs_file(folder: Path, rows: list[Any]) -> str:
    return write_rows(folder / "agreement.jsonl", rows)


def reading(uri: str, world: dict[str, KeptNetwork], **fields: Any):
    spec = MinimalPairsSpec(uris=(uri,), **fields)
    return read_pairs(uri, spec, load_tokenizer(world["generator"].uri), 64)


@pytest.mark.parametrize("kind", ["discriminator", "generator"])
def test_each_pair_goes_to_the_sentence_that_transformers_scores_higher(
    kind: str, world: dict[str, KeptNetwork], tmp_path: Path
) -> None:
    uri = pairs_file(tmp_path, PAIRS)
    counts, lines = score_pairs(world[kind], uri, MinimalPairsSpec(uris=(uri,)), 64, CPU)
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["line"] for row in rows] == [1, 2, 3, 4]
    assert [row["phenomenon"] for row in rows] == ["doubling", "order", "agreement", "order"]
    for pair, row in zip(PAIRS, rows, strict=True):
        for field in ("good", "bad"):
            expected = reference(kind, world, pair[f"sentence_{field}"])
            assert row[field] == pytest.approx(expected, abs=1e-3), (pair, field)
    right = [row["good"] > row["bad"] for row in rows]
    assert counts.num_by_phenomenon == {"doubling": 1, "order": 2, "agreement": 1}
    assert counts.num_right == {"doubling": right[0], "order": right[1] + right[3], "agreement": 0}
    assert counts.num_alike == 1  # upper and lower case are one to this vocabulary: a tie, and wrong
    assert counts.accuracy == sum(right) / 4


def reference(kind: str, world: dict[str, KeptNetwork], sentence: str) -> float:
    """A sentence's score by Transformers' classes, from the folder that the network was kept from."""
    network, mask_id = world[kind], world[kind].special.mask_id
    tokenizer = load_tokenizer(network.uri)
    tokenizer.encode_special_tokens = True
    ids = torch.tensor([[2, *tokenizer.encode(sentence, add_special_tokens=False).ids, 3]])
    assert mask_id not in ids
    return plain_score(kind, Path(network.uri).parents[2] / kind[0], ids, mask_id)


def test_malformed_lines_are_reported_and_counted(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    rows = [
        PAIRS[0],
        {"sentence_good": "a"},
        {"sentence_good": 3, "sentence_bad": "b"},
        {"sentence_good": "anna", "sentence_bad": "anna"},
        {"sentence_good": "in " * 80, "sentence_bad": "anna"},
        {"sentence_good": "anna", "sentence_bad": "  "},
    ]
    uri = pairs_file(tmp_path, rows)
    found = reading(uri, world, max_bad_row_fraction=0.9)
    assert (len(found.pairs), found.num_rows, found.num_bad_rows) == (1, 6, 5)
    assert [line.split(": ", 1)[0].rsplit(":", 1)[1] for line in found.report] == ["2", "3", "4", "5", "6"]
    assert "'sentence_bad' must hold text, got None" in found.report[0]
    assert "must differ, got 'anna' twice" in found.report[2]
    assert "must have 3 to 64 tokens, [CLS] and [SEP] included, got 82" in found.report[3]
    with pytest.raises(DataError, match=r"max_bad_row_fraction must be at least .*, got 0.01 and 5 of 6") as failed:
        reading(uri, world)
    assert len(failed.value.report) == 5


def test_pairs_that_an_open_quotation_mark_swallows_are_counted(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    """All lines behind it are lost, and not one."""
    lines = ["sentence_good,sentence_bad", "anna lives .,anna in .", '"the film is good .,film is .', *["a,b"] * 8]
    (tmp_path / "pairs.csv").write_text("\n".join(lines) + "\n")
    uri = str(tmp_path / "pairs.csv")
    found = reading(uri, world, max_bad_row_fraction=0.9)
    assert (len(found.pairs), found.num_rows, found.num_bad_rows) == (1, 10, 9)
    with pytest.raises(DataError, match=r"max_bad_row_fraction must be at least .*, got 0.5 and 9 of 10"):
        reading(uri, world, max_bad_row_fraction=0.5)


def test_an_empty_file_is_named(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"agreement.jsonl must hold pairs of sentences, got 0 lines"):
        reading(pairs_file(tmp_path, []), world)


def test_reading_stops_at_the_limit(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    found = reading(pairs_file(tmp_path, PAIRS * 10), world, max_pairs_per_file=7)
    assert (len(found.pairs), found.num_rows) == (7, 7)


def test_rows_of_text_are_framed_full_and_end_padded(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("anna lives in oslo .\nthe film is good .\nanna lives in oslo .\n")
    source = TextSource(uris=(str(tmp_path / "a.txt"),), document="line")
    spec = UnseenTextSpec(sources={"x": source}, sequence_length=8, cleaning=CleaningSpec(min_characters=1))
    rows = TextRows("x", source, spec, world["generator"].uri, world["generator"].special)
    ids, is_real = rows.read()
    text = load_tokenizer(world["generator"].uri)
    words = [[text.id_to_token(int(i)) for i in row[real]] for row, real in zip(ids, is_real, strict=True)]
    assert words == [
        ["[CLS]", "anna", "lives", "in", "oslo", ".", "[SEP]", "[SEP]"],
        ["[CLS]", "the", "film", "is", "good", ".", "[SEP]"],
    ]
    assert rows.reading.num_documents == 2  # the third is the first again
    assert ids[1, -1] == world["generator"].special.pad_id


def test_text_is_scored_alike_in_any_batches_and_from_its_document(
    world: dict[str, KeptNetwork], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows = [{"text": " ".join(rng.choice(TOKENS[5:], 30))} for _ in range(60)]
    source = JsonlSource(uris=(write_rows(tmp_path / "text.jsonl", rows),))
    spec = UnseenTextSpec(sources={"toy": source}, sequence_length=32, max_rows=50)
    scores = score_text(world["generator"], world["discriminator"], "toy", source, spec, CPU)
    assert (scores.num_rows, scores.num_documents) == (50, 49)
    assert scores.num_tokens == 50 * 30 - 48  # each document but the last ends in [SEP]
    assert scores.figures["generator_perplexity"] == pytest.approx(math.exp(scores.figures["generator_loss"]))
    assert 0 < scores.figures["discriminator_auc"] < 1
    monkeypatch.setattr("pipelines.scoring.text.TOKENS_PER_BATCH", 7 * 32)
    again = score_text(world["generator"], world["discriminator"], "toy", source, spec, CPU)
    assert again.figures == pytest.approx(scores.figures, rel=1e-4)
    alone = score_text(world["generator"], None, "toy", source, spec, CPU)
    assert alone.figures == pytest.approx({k: scores.figures[k] for k in alone.figures}, rel=1e-4)
    assert "discriminator_loss" not in alone.figures


def test_text_without_text_and_malformed_records_are_named(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    source = JsonlSource(uris=(write_rows(tmp_path / "short.jsonl", [{"text": "anna"}] * 3),))
    spec = UnseenTextSpec(sources={"toy": source})
    with pytest.raises(DataError, match=r"unseen_text.sources.toy must hold text, got 3 records without any that"):
        score_text(world["generator"], None, "toy", source, spec, CPU)
    broken = JsonlSource(uris=(write_rows(tmp_path / "broken.jsonl", [{"text": "anna " * 20}, {"txt": ""}]),))
    with pytest.raises(DataError, match=r"max_bad_record_fraction .* got 0.01 and 1 of 2") as failed:
        score_text(world["generator"], None, "toy", broken, spec, CPU)
    assert "broken.jsonl:2: missing_field" in failed.value.report[0]


def test_a_unit_is_scored_once(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    uri = pairs_file(tmp_path, PAIRS)
    fields = {
        "spec": MinimalPairsSpec(uris=(uri,)),
        "file_uri": uri,
        "max_tokens": 64,
        "compute": EvaluateComputeSpec(),
    }
    unit = PairsUnit(world["discriminator"], file_identity="1", uri=str(tmp_path / "scores" / "a"), **fields)
    first = score_unit(unit)
    Path(uri).unlink()
    assert score_unit(unit) == first
    other = PairsUnit(world["generator"], file_identity="1", uri=str(tmp_path / "scores" / "a"), **fields)
    with pytest.raises(Exception, match=r"agreement\.jsonl"):  # another network's document is not this one's
        score_unit(other)


def test_a_text_unit_returns_from_its_document(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    source = JsonlSource(uris=(write_rows(tmp_path / "t.jsonl", [{"text": "anna lives in oslo . " * 9}]),))
    spec = UnseenTextSpec(sources={"toy": source}, sequence_length=16)
    unit = TextUnit(
        world["generator"], None, "toy", source, spec, EvaluateComputeSpec(), str(tmp_path / "scores" / "text")
    )
    first = score_unit(unit)
    (tmp_path / "t.jsonl").unlink()
    assert score_unit(unit) == first


def test_a_network_without_the_head_is_refused(tmp_path: Path) -> None:
    folder = pretrained_folder(tmp_path / "d")
    with pytest.raises(CheckpointError, match=r"must hold a generator, got a discriminator"):
        keep_network("generator", NetworkFiles(uri=str(folder)), str(tmp_path / "job"), "")
    bare = tmp_path / "bare"
    transformers.ElectraForPreTraining.from_pretrained(folder).electra.save_pretrained(bare)
    for file in ("tokenizer.json", "vocab.txt"):
        (bare / file).write_bytes((folder / file).read_bytes())
    with pytest.raises(CheckpointError, match=r"of its head, that of ElectraForPreTraining; .*bare has no"):
        keep_network("discriminator", NetworkFiles(uri=str(bare)), str(tmp_path / "job"), "")


def test_summary_and_table(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    files = {}
    for name, rows in (("one.jsonl", PAIRS[:2]), ("two.jsonl", PAIRS[1:])):
        uri = write_rows(tmp_path / name, rows)
        files[name], _ = score_pairs(world["discriminator"], uri, MinimalPairsSpec(uris=(uri,)), 64, CPU)
    pairs = summarise_pairs("discriminator", files)
    assert pairs.accuracy == pytest.approx((files["one.jsonl"].accuracy + files["two.jsonl"].accuracy) / 2)
    assert (pairs.num_pairs, pairs.num_alike) == (5, 1)
    assert set(pairs.by_phenomenon) == {"doubling", "order", "two"}
    source = JsonlSource(uris=(write_rows(tmp_path / "t.jsonl", [{"text": "anna lives in oslo . " * 9}]),))
    spec = UnseenTextSpec(sources={"toy": source}, sequence_length=16)
    text = summarise_text("toy", score_text(world["generator"], None, "toy", source, spec, CPU))
    names = ["a|b", "a?b", "..", "/x//y/", "согласование", "согласования", "a" * 190, "a" * 191]
    named = metrics([pairs.model_copy(update={"by_phenomenon": dict.fromkeys(names, 1.0)})], [text])
    assert sum("/phenomenon/" in name for name in named) == len(names)
    for name in named:
        _validate_metric_name(name)
    assert "minimal_pairs/discriminator/phenomenon/a_b 2" in named
    assert named["unseen_text/toy/generator_loss"] == text.figures["generator_loss"]
    assert headline([pairs], [text])["discriminator_minimal_pairs"] == pairs.accuracy
    shown = table([pairs], [text])
    assert "| phenomenon order |" in shown
    assert "| generator loss |" in shown


def test_files_are_called_by_the_shortest_end_that_tells_them_apart() -> None:
    uris = ["/a/x.jsonl", "/b/x.jsonl", "s3://c/b/y.jsonl", "/a/x.jsonl"]
    assert short_names(uris) == {"/a/x.jsonl": "a/x.jsonl", "/b/x.jsonl": "b/x.jsonl", "s3://c/b/y.jsonl": "y.jsonl"}


@pytest.mark.parametrize(
    ("phenomenon", "expected"),
    [(3, "3"), (None, "agreement"), ("", "agreement"), ("x" * 201, None), ("\ud800", None)],
)
def test_what_a_pair_is_about(phenomenon: Any, expected: str | None, world: Any, tmp_path: Path) -> None:
    uri = pairs_file(tmp_path, [PAIRS[0], {**PAIRS[1], "phenomenon": phenomenon}])
    found = reading(uri, world, max_bad_row_fraction=0.5)
    assert [pair.phenomenon for pair in found.pairs[1:]] == ([expected] if expected else [])
    assert found.num_bad_rows == (expected is None)


def test_a_key_that_tells_every_pair_apart_is_no_phenomenon(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    uri = pairs_file(tmp_path, [{**PAIRS[0], "phenomenon": f"pair {number}"} for number in range(1001)])
    with pytest.raises(DataError, match=r"a key with at most 1000 values in a file, got 'phenomenon' with 1001"):
        reading(uri, world)


def test_pairs_are_read_from_any_table(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    lines = [f"{pair['sentence_good']}\t{pair['sentence_bad']}\n" for pair in PAIRS[:2]]
    path = tmp_path / "pairs.tsv.gz"
    path.write_bytes(gzip.compress("".join(["sentence_good\tsentence_bad\n", *lines]).encode()))
    found = reading(str(path), world)
    assert [pair.phenomenon for pair in found.pairs] == ["pairs", "pairs"]
    with pytest.raises(DataError, match=r"must name files that end in .jsonl, .csv, .tsv, .parquet, got .*/a\.json"):
        reading(str(tmp_path / "a.json"), world)


def test_whole_words_may_leave_nothing_to_mask(world: dict[str, KeptNetwork], tmp_path: Path) -> None:
    tokens = [*TOKENS, *(f"##{letter}" for letter in "abcdefgh"), *"abcdefgh"]
    folder = generator_folder(tmp_path / "g", tokens)
    network = keep_network("generator", NetworkFiles(uri=str(folder)), str(tmp_path / "job"), "")
    source = JsonlSource(uris=(write_rows(tmp_path / "t.jsonl", [{"text": "abcdefgh" * 12}]),))
    spec = UnseenTextSpec(sources={"toy": source}, sequence_length=16, masking=MaskingConfig(whole_word=True))
    figures = score_text(network, None, "toy", source, spec, CPU).figures
    assert "generator_loss" not in figures
    assert "generator_perplexity" not in figures
    with pytest.raises(DataError, match="whole_word needs a vocabulary with ## continuations"):
        score_text(world["generator"], None, "toy", source, spec, CPU)


def check(networks: dict[str, KeptNetwork], **fields: Any) -> None:
    fields.setdefault("sources", {"toy": PythonDocsSource(packages=("pip",), include_standard_library=False)})
    evaluate._check_text(UnseenTextSpec(**fields), networks)


def test_networks_that_do_not_go_together_are_told_before_anything_is_read(
    world: dict[str, KeptNetwork], tmp_path: Path
) -> None:
    check(world, sequence_length=64)
    with pytest.raises(DataError, match=r"at most the discriminator's max_position_embeddings, got 65 and 64"):
        check(world, sequence_length=65)
    folder = generator_folder(tmp_path / "g", [*TOKENS, "more"])
    other = keep_network("generator", NetworkFiles(uri=str(folder)), str(tmp_path / "job"), "")
    with pytest.raises(CheckpointError, match="must have one vocabulary where unseen_text is given, got two"):
        check({**world, "generator": other}, sequence_length=64)
    larger = dataclasses.replace(other, vocabulary_sha256=world["generator"].vocabulary_sha256)
    with pytest.raises(CheckpointError, match="at most as many ids as the discriminator"):
        check({**world, "generator": larger}, sequence_length=64)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match=r"unseen_text.sources.toy must hold text, got files that are all empty"):
        check(world, sequence_length=64, sources={"toy": TextSource(uris=(str(tmp_path / "empty.txt"),))})
