"""Both registered networks held against minimal pairs and unseen text, over REST."""

from __future__ import annotations

import json
import random
from pathlib import Path

import mlflow
import pytest
import transformers
from main_job import MainJob, finished
from plain_scores import plain_score

from service.client import ElectraClient
from service.local import LocalStack

pytestmark = pytest.mark.slow


def sentences(count: int) -> list[list[str]]:
    rng = random.Random(0)
    heads = ["the method", "this function", "the default", "each call"]
    words = ["returns the value of the", "raises an error if the", "is the name of a", "must not be a"]
    ends = ["function .", "module .", "class .", "list of arguments .", "path to a file ."]
    return [f"{rng.choice(heads)} {rng.choice(words)} {rng.choice(ends)}".split() for _ in range(count)]


def pairs(count: int) -> str:
    """Sentences of the corpus's own words, and the same words in a worse order."""
    rng = random.Random(1)
    lines = []
    for words in sentences(count):
        worse = words[:-1]
        while worse == words[:-1]:
            rng.shuffle(worse)
        pair = {"sentence_good": " ".join(words), "sentence_bad": " ".join([*worse, "."]), "phenomenon": "order"}
        lines.append(json.dumps(pair))
    return "\n".join(lines) + "\n"


def by_transformers(network: str, folder: Path, sentence: str) -> float:
    """A sentence's score by the exported network and the tokenizer beside it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(sentence, return_tensors="pt")["input_ids"]
    return plain_score(network, folder, ids, tokenizer.mask_token_id)


def test_networks_are_scored_without_training(stack: LocalStack, main_job: MainJob, tmp_path: Path) -> None:
    (tmp_path / "order.jsonl").write_text(pairs(200))
    four = zip(*[iter(" ".join(words) for words in sentences(1200))] * 4, strict=True)
    (tmp_path / "text.txt").write_text("\n".join(" ".join(some) for some in four))
    spec = {
        "kind": "evaluate",
        "name": "end-to-end-evaluated",
        "discriminator": {"type": "registered", "name": "end-to-end"},
        "generator": {"type": "files", "uri": str(main_job.exports["generator"])},
        "minimal_pairs": {"uris": str(tmp_path / "*.jsonl")},
        "unseen_text": {
            "sources": {
                "notes": {"type": "text", "uris": str(tmp_path / "text.txt"), "document": "line"},
                "docs": {"type": "python_docs", "packages": ["httpx"], "include_standard_library": False},
            },
            "sequence_length": 64,
            "max_rows": 64,
        },
        "compute": {"num_workers": 2},
    }
    with ElectraClient(stack.service_url) as client:
        detail = finished(client, client.submit(spec).job_id).detail
    result = detail.result
    assert result is not None
    folder = stack.home / "storage" / "jobs" / detail.job_id
    for scores in result.minimal_pairs:
        lines = [
            json.loads(line) for line in (folder / f"scores/pairs-{scores.network}-0000.jsonl").read_text().splitlines()
        ]
        assert scores.num_pairs == len(lines) == 200
        right = sum(line["good"] > line["bad"] for line in lines) / 200
        assert scores.by_phenomenon == {"order": right} == {"order": scores.accuracy}
        given = [json.loads(line) for line in (tmp_path / "order.jsonl").read_text().splitlines()[:3]]
        for pair, line in zip(given, lines, strict=False):
            expected = by_transformers(scores.network, main_job.exports[scores.network], pair["sentence_good"])
            assert line["good"] == pytest.approx(expected, abs=1e-3)
    assert [text.source for text in result.unseen_text] == ["docs", "notes"]  # by name
    for text in result.unseen_text:
        assert text.figures["generator_loss"] < 6.9  # ln 1024, what knowing nothing costs
        assert 0 < text.figures["discriminator_auc"] < 1
    run = mlflow.MlflowClient(stack.mlflow_url).get_run(result.mlflow_run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["minimal_pairs/generator/phenomenon/order"] == result.minimal_pairs[1].accuracy
    assert run.data.tags["electra.discriminator"].startswith("end-to-end version")
    assert "| phenomenon order |" in (folder / "report" / "scores.md").read_text()
