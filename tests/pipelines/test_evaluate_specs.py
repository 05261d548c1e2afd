"""Evaluation specs: what is refused and how it is said, which files they name, and what a plan tells."""

from __future__ import annotations

import pytest

from pipelines.specs.evaluate import EvaluateSpec
from pipelines.specs.parsing import dump_spec, load_spec
from pipelines.specs.plans import EvaluatePlan, evaluation_files, plan_any
from pipelines.specs.spec_errors import SpecError

D = "discriminator: {type: registered, name: m}\n"
G = "generator: {type: files, uri: /models/g, tokenizer_uri: /models/v}\n"
PAIRS = "minimal_pairs: {uris: 'blimp/*.jsonl'}\n"
TEXT = "unseen_text: {sources: {news: {type: jsonl, uris: news.jsonl}, notes: {type: text, uris: [a.txt, b.txt]}}}\n"


def resolved(document: str) -> EvaluateSpec:
    spec = load_spec("kind: evaluate\n" + document)
    assert isinstance(spec, EvaluateSpec)
    return spec


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (PAIRS, "spec: discriminator or generator must be given, got neither"),
        (D, "spec: minimal_pairs or unseen_text must be given, got neither"),
        (D + TEXT, "spec: generator must be given where unseen_text is"),
        (D + "minimal_pairs: {uris: []}", "minimal_pairs.uris: Tuple should have at least 1 item"),
        (D + "minimal_pairs: {}", "minimal_pairs.uris: must be given"),
        (G + "unseen_text: {sources: {}}", "unseen_text.sources: Dictionary should have at least 1 item"),
        (G + "unseen_text: {sources: {n: {type: text, uris: a, z: 1}}}", "unseen_text.sources.n.z: is not a field"),
        (G + "unseen_text: {sources: {'a b': {type: text, uris: a}}}", "unseen_text.sources.a b: String should match"),
        (
            D + "minimal_pairs: {uris: [a.jsonl.gz, 'b/*.parquet.zst']}",
            "minimal_pairs.uris: Parquet files must not end in .gz or .zst, for they are compressed within, "
            "got 'b/*.parquet.zst'",
        ),
        (
            G + "unseen_text: {sources: {n: {type: parquet, uris: a.parquet.GZ}}}",
            "unseen_text.sources.n.uris: Parquet files must not end in .gz or .zst",
        ),
        ("generator: {type: files, uri: 'a*'}\n" + PAIRS, "generator.uri: must name one place and be no pattern"),
        ("generator: {type: registered, name: m, alias: a, version: 1}\n" + PAIRS, "alias must be absent where"),
        (D + "discriminator: {type: registered, name: m, without_pretraining: true}\n" + PAIRS, "is not a field here"),
        (D + PAIRS + "record: {alias: newest}", "record.alias: is not a field here"),
    ],
)
def test_refused(document: str, expected: str) -> None:
    with pytest.raises(SpecError) as refused:
        resolved(document)
    assert expected in str(refused.value)


def test_the_files_of_a_spec_are_known_before_it_starts() -> None:
    assert list(evaluation_files(resolved(D + G + PAIRS + TEXT))) == [
        ("/generator/uri", "/models/g"),
        ("/generator/tokenizer_uri", "/models/v"),
        ("/minimal_pairs/uris/0", "blimp/*.jsonl"),
        ("/unseen_text/sources/news/uris/0", "news.jsonl"),
        ("/unseen_text/sources/notes/uris/0", "a.txt"),
        ("/unseen_text/sources/notes/uris/1", "b.txt"),
    ]


def test_a_resolved_spec_resolves_to_itself() -> None:
    spec = resolved(D + G + PAIRS + TEXT)
    assert load_spec(dump_spec(spec)) == spec


def test_plan() -> None:
    planned = plan_any(resolved(D + G + PAIRS + "compute: {num_workers: 3, cpus_per_worker: 2}"), 123)
    assert isinstance(planned, EvaluatePlan)
    assert (planned.networks, planned.num_cpus, planned.data_bytes) == (("discriminator", "generator"), 6.0, 123)
