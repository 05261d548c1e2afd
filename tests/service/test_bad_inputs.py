"""What must not get in: each request with the status, the problem code and the pointer it is answered with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from service_doubles import START
from sqlalchemy import text

from service.interfaces import JobFilter
from service.ledger.database import make_engine
from service.ledger.store import SqlJobStore
from service.records import ClusterStatus
from service.settings import Settings

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}


def tiny(**sections: Any) -> dict[str, Any]:
    return {"spec": {"kind": "pretrain", "preset": "tiny", **sections}}


def source(uri: object, **fields: Any) -> dict[str, Any]:
    return tiny(corpus={"sources": [{"type": "text", "uris": [uri], **fields}]})


def overridden(*overrides: str) -> dict[str, Any]:
    return {**tiny(), "overrides": list(overrides)}


def finetuned(**sections: Any) -> dict[str, Any]:
    task = {"type": "classification", "data": {"train": "/nowhere/train.csv"}}
    return {"spec": {"kind": "finetune", "model": {"type": "registered", "name": "m"}, "task": task, **sections}}


def evaluated(**sections: Any) -> dict[str, Any]:
    network = {"type": "registered", "name": "m"}
    return {"spec": {"kind": "evaluate", "generator": network, **sections}}


SPECS: dict[str, tuple[Any, str, str]] = {
    "evaluate_nothing": (evaluated(), "invalid_spec", "/spec"),
    "evaluate_no_network": (evaluated(generator=None, minimal_pairs={"uris": "/a"}), "invalid_spec", "/spec"),
    "evaluate_pairs_absent": (
        evaluated(minimal_pairs={"uris": ["/nowhere/*.jsonl"]}),
        "corpus_unreadable",
        "/spec/minimal_pairs/uris/0",
    ),
    "evaluate_text_absent": (
        evaluated(unseen_text={"sources": {"news": {"type": "text", "uris": "/nowhere/a.txt"}}}),
        "corpus_unreadable",
        "/spec/unseen_text/sources/news/uris/0",
    ),
    "evaluate_text_kind": (
        evaluated(unseen_text={"sources": {"news": {"type": "pdf"}}}),
        "invalid_spec",
        "/spec/unseen_text/sources/news",
    ),
    "finetune_without_task": (finetuned(task=None), "invalid_spec", "/spec"),
    "finetune_task_unknown": (finetuned(task={"type": "translation"}), "invalid_spec", "/spec/task"),
    "finetune_model_unknown": (finetuned(model={"type": "hub", "name": "x"}), "invalid_spec", "/spec/model"),
    "finetune_label_column": (
        finetuned(task={"type": "classification", "label": "", "data": {"train": "/a.csv"}}),
        "invalid_spec",
        "/spec/task/label",
    ),
    "finetune_seeds_twice": (finetuned(training={"seeds": [1, 1]}), "invalid_spec", "/spec/training"),
    "finetune_of_a_suite": (
        finetuned(task=None, suite={"type": "tasks", "tasks": {"a/b": {"type": "glue", "name": "RTE", "uri": "/a"}}}),
        "invalid_spec",
        "/spec/suite/tasks/a~1b",
    ),
    "finetune_file_absent": (finetuned(), "corpus_unreadable", "/spec/task/data/train/0"),
    "probe_file_absent": (
        tiny(
            probe={
                "interval_steps": 2000,
                "training": {"max_sequence_length": 64},
                "tasks": {"a": {"type": "classification", "data": {"train": "/nowhere/train.csv"}}},
            }
        ),
        "corpus_unreadable",
        "/spec/probe/tasks/a/data/train/0",
    ),
    "unknown_field": (tiny(training={"num_train_stps": 5}), "invalid_spec", "/spec/training/num_train_stps"),
    "unknown_section": (tiny(trainer={}), "invalid_spec", "/spec/trainer"),
    "slash_in_unknown_field": (tiny(**{"a/b~c": 1}), "invalid_spec", "/spec/a~1b~0c"),
    "wrong_type": (tiny(training={"num_train_steps": "many"}), "invalid_spec", "/spec/training/num_train_steps"),
    "section_is_a_list": (tiny(model=[]), "invalid_spec", "/spec/model"),
    "heads_do_not_divide": (tiny(model={"num_attention_heads": 3}), "invalid_spec", "/spec/model"),
    "vocabulary_too_small": (tiny(tokenizer={"vocab_size": 16}), "invalid_spec", "/spec/tokenizer/vocab_size"),
    "alphabet_too_large": (tiny(tokenizer={"vocab_size": 128}), "invalid_spec", "/spec/tokenizer"),
    "no_workers": (tiny(compute={"num_workers": 0}), "invalid_spec", "/spec/compute/num_workers"),
    "warmup_too_long": (
        tiny(optimizer={"warmup_steps": 50}, training={"num_train_steps": 50}),
        "invalid_spec",
        "/spec",
    ),
    "sequence_too_long": (tiny(training={"sequence_length": 65_536}), "invalid_spec", "/spec"),
    "batch_not_divisible": (
        tiny(training={"global_batch_size": 15}, compute={"num_workers": 2}),
        "invalid_spec",
        "/spec",
    ),
    "negative_learning_rate": (tiny(optimizer={"learning_rate": -1}), "invalid_spec", "/spec/optimizer/learning_rate"),
    "name_with_slash": (tiny(name="a/b"), "invalid_spec", "/spec/name"),
    "name_with_shell": (tiny(name="$(reboot)"), "invalid_spec", "/spec/name"),
    "alias_latest": (tiny(record={"alias": "latest"}), "invalid_spec", "/spec/record"),
    "unknown_preset": (tiny(preset="huge"), "invalid_spec", "/spec/preset"),
    "preset_is_a_list": (tiny(preset=["tiny"]), "invalid_spec", "/spec/preset"),
    "kind_missing": ({"spec": {}}, "invalid_spec", "/spec/kind"),
    "kind_unknown": ({"spec": {"kind": "translate"}}, "invalid_spec", "/spec/kind"),
    "huge_integer": (tiny(training={"seed": 10**300}), "invalid_spec", "/spec/training/seed"),
    "no_sources": (tiny(corpus={"sources": []}), "invalid_spec", "/spec/corpus/sources"),
    "source_type_unknown": (
        tiny(corpus={"sources": [{"type": "csv", "uris": ["a"]}]}),
        "invalid_spec",
        "/spec/corpus/sources/0",
    ),
    "scheme_unknown": (source("ftp://host/a"), "invalid_spec", "/spec/corpus/sources/0/uris"),
    "path_with_nul": (source("/tmp/a\x00b"), "invalid_spec", "/spec/corpus/sources/0/uris"),
    "uri_too_long": (source("a" * 5000), "invalid_spec", "/spec/corpus/sources/0/uris/0"),
    "missing_corpus": (source("/no/such/file.txt"), "corpus_unreadable", "/spec/corpus/sources/0/uris/0"),
    "empty_glob": (source("/no/such/*.txt"), "corpus_unreadable", "/spec/corpus/sources/0/uris/0"),
    "path_too_long": (source("/" + "a" * 4000), "corpus_unreadable", "/spec/corpus/sources/0/uris/0"),
    "empty_corpus": (source("/dev/null"), "corpus_unreadable", "/spec/corpus/sources/0/uris/0"),
    "missing_tokenizer": (
        tiny(tokenizer={"type": "pretrained", "uri": "/no/vocab.txt"}),
        "corpus_unreadable",
        "/spec/tokenizer/uri",
    ),
    "http_refused": (source("http://127.0.0.1:9/a.txt"), "corpus_unreadable", "/spec/corpus/sources/0/uris/0"),
    "more_workers_than_cpus": (
        tiny(compute={"num_workers": 8}),
        "insufficient_resources",
        "/spec/compute/num_workers",
    ),
    "more_gpus_than_there_are": (
        tiny(compute={"gpus_per_worker": 1}),
        "insufficient_resources",
        "/spec/compute/num_workers",
    ),
    "override_without_value": (overridden("training.seed"), "invalid_spec", "/overrides/0"),
    "override_of_nothing": (overridden("training.sed=1"), "invalid_spec", "/overrides/0"),
    "override_breaks_rule": (overridden("name=a", "training.seed=-1"), "invalid_spec", "/overrides/1"),
    "override_with_nan": (overridden("optimizer.learning_rate=.nan"), "invalid_spec", "/overrides/0"),
    "override_with_alias": (overridden("model=[&a 1, *a]"), "invalid_spec", "/overrides/0"),
    "override_nested_deep": (overridden("model=" + "[" * 3000), "invalid_spec", "/overrides/0"),
    "override_with_no_date": (overridden("name=2024-99-99"), "invalid_spec", "/overrides/0"),
    "override_is_a_number": ({**tiny(), "overrides": [5]}, "invalid_request", "/overrides/0"),
    "spec_is_null": ({"spec": None}, "invalid_request", "/spec"),
    "spec_is_a_list": ({"spec": [1]}, "invalid_request", "/spec"),
    "spec_missing": ({}, "invalid_request", "/spec"),
    "entrypoint_is_not_ours_to_give": ({**tiny(), "entrypoint": "sh"}, "invalid_request", "/entrypoint"),
    "body_is_a_list": ([], "invalid_request", ""),
    "body_is_null": (None, "invalid_request", ""),
}


@pytest.fixture
def small_cluster(store: SqlJobStore) -> None:
    store.save_cluster_status(ClusterStatus(reconciled_at=START, is_ray_reachable=True, num_cpus=2, num_gpus=0))


def check(answer: httpx.Response, status: int, code: str, pointer: str | None) -> None:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code), problem
    if pointer is not None:
        assert pointer in [item["pointer"] for item in problem["errors"]], problem
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert "Traceback" not in answer.text
    assert "site-packages" not in answer.text


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.usefixtures("small_cluster")
async def test_bad_spec(client: httpx.AsyncClient, store: SqlJobStore, name: str) -> None:
    body, code, pointer = SPECS[name]
    check(await client.post("/v1/jobs", content=json.dumps(body), headers=JSON), 422, code, pointer)
    assert store.page(JobFilter()) == []


async def test_unreadable_s3_is_found_out_in_time(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    """No credentials, no such bucket, and here no network either."""
    async with asyncio.timeout(60):
        answer = await client.post("/v1/jobs", json=source("s3://no-such-bucket-4711/a.jsonl"))
    check(answer, 422, "corpus_unreadable", "/spec/corpus/sources/0/uris/0")
    assert store.page(JobFilter()) == []


@pytest.mark.usefixtures("small_cluster")
async def test_the_message_about_cpus_names_field_rule_and_value(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/jobs", json=tiny(compute={"num_workers": 8}))
    rule = "compute.num_workers × cpus_per_worker must be at most the cluster's 2 CPUs, got 8"
    assert answer.json()["detail"] == rule


async def test_an_unknown_field_is_asked_about(client: httpx.AsyncClient) -> None:
    body = {**tiny(training={"num_train_stps": 5}), "overrides": ["learning_rate=3"]}
    answer = (await client.post("/v1/jobs:plan", json=body)).json()
    assert [(error["pointer"], error["rule"]) for error in answer["errors"]] == [
        ("/spec/training/num_train_stps", "is not a field here; did you mean num_train_steps?"),
        ("/overrides/0", "is not a field here; did you mean optimizer.learning_rate?"),
    ]
    assert "learning_rate: is not a field here (got 3); did you mean optimizer.learning_rate?" in answer["detail"]


async def _chunks() -> AsyncIterator[bytes]:
    for _ in range(1024):
        yield b"x" * 1024


BODIES: dict[str, tuple[Any, dict[str, str], int, str]] = {
    "empty_body": (b"", JSON, 400, "malformed_json"),
    "not_json": (b"kind: pretrain", JSON, 400, "malformed_json"),
    "cut_off": (b'{"spec": {', JSON, 400, "malformed_json"),
    "not_utf8": (b'{"spec": "\xff"}', JSON, 400, "malformed_json"),
    "nan": (b'{"spec": {"x": NaN}}', JSON, 400, "malformed_json"),
    "infinity": (b'{"spec": {"x": 1e999}}', JSON, 400, "malformed_json"),
    "endless_number": (b'{"spec": {"x": ' + b"9" * 5000 + b"}}", JSON, 400, "malformed_json"),
    "key_twice": (b'{"spec": {}, "spec": {}}', JSON, 400, "malformed_json"),
    "half_a_surrogate": (b'{"spec": {"\\ud800": 1}}', JSON, 400, "malformed_json"),
    "nesting_bomb": (b'{"spec":' + b"[" * 100_000, JSON, 400, "malformed_json"),
    "nesting_bomb_of_objects": (b'{"a":' * 500 + b"1" + b"}" * 500, JSON, 400, "malformed_json"),
    "wrong_content_type": (b"{}", {"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
    "form": (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
    "no_content_type": (b"{}", {}, 415, "unsupported_media_type"),
    "wrong_charset": (b"{}", {"Content-Type": "application/json; charset=utf-16"}, 415, "unsupported_media_type"),
    "one_megabyte": (b"x" * 1_000_000, JSON, 413, "body_too_large"),
    "one_megabyte_in_chunks": (_chunks, JSON, 413, "body_too_large"),
    "length_claimed_wrong": (_chunks, {**JSON, "Content-Length": "10"}, 413, "body_too_large"),
    "bad_key": (b"{}", {**JSON, "Idempotency-Key": "a b"}, 422, "invalid_request"),
    "long_key": (b"{}", {**JSON, "Idempotency-Key": "k" * 201}, 422, "invalid_request"),
    "other_host": (b"{}", {**JSON, "Host": "evil.example"}, 400, "host_not_allowed"),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs:plan"])
async def test_bad_body(client: httpx.AsyncClient, store: SqlJobStore, path: str, name: str) -> None:
    content, headers, status, code = BODIES[name]
    if "key" in name and path == "/v1/jobs:plan" and status == 422:
        pytest.skip("plans take no key")
    answer = await client.post(path, content=content() if callable(content) else content, headers=headers)
    check(answer, status, code, None)
    assert store.page(JobFilter()) == []


REQUESTS: list[tuple[str, str, int, str, str | None]] = [
    ("GET", "/v1/jobs/pt-0123", 404, "job_not_found", None),
    ("GET", "/v1/jobs/pt-0123/logs", 404, "job_not_found", None),
    ("GET", "/v1/jobs/pt-0123/logs?follow=true", 404, "job_not_found", None),
    ("POST", "/v1/jobs/pt-0123/cancel", 404, "job_not_found", None),
    ("GET", "/v1/jobs/UPPER%20case", 422, "invalid_request", "/path/job_id"),
    ("GET", "/v1/jobs/..%2F..%2Fetc", 404, "not_found", None),
    ("GET", "/v1/jobs?cursor=rubbish", 422, "invalid_cursor", "/query/cursor"),
    ("GET", "/v1/jobs?cursor=OTk5OTktMDEtMDEgYQ==", 422, "invalid_cursor", "/query/cursor"),
    ("GET", "/v1/jobs?cursor=MDAwMS0wMS0wMVQwMDowMDowMCswOTowMCBh", 422, "invalid_cursor", "/query/cursor"),
    ("GET", "/v1/jobs?state=ASLEEP", 422, "invalid_request", "/query/state/0"),
    ("GET", "/v1/jobs?limit=0", 422, "invalid_request", "/query/limit"),
    ("GET", "/v1/jobs?limit=201", 422, "invalid_request", "/query/limit"),
    ("GET", "/v1/jobs?kind=x", 422, "invalid_request", "/query/kind"),
    ("GET", "/v1/jobs?stat=QUEUED", 422, "invalid_request", "/query/stat"),
    # Whether there is such a job is settled before anything else: else the answer would tell of a job that is hidden.
    ("GET", "/v1/jobs/pt-0123/logs?tail=0", 404, "job_not_found", None),
    ("GET", "/v1/presets/huge", 404, "preset_not_found", None),
    ("GET", "/nothing", 404, "not_found", None),
    ("GET", "/%ff%00", 404, "not_found", None),
    ("PUT", "/v1/jobs", 405, "method_not_allowed", None),
    ("DELETE", "/v1/jobs/pt-0123", 405, "method_not_allowed", None),
]


@pytest.mark.parametrize(("method", "path", "status", "code", "pointer"), REQUESTS)
async def test_bad_request(
    client: httpx.AsyncClient, method: str, path: str, status: int, code: str, pointer: str | None
) -> None:
    check(await client.request(method, path), status, code, pointer)


async def test_405_names_every_method_of_the_path(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/jobs")).headers["allow"] == "GET, POST"


async def test_a_surprise_shows_nothing_of_the_inside(client: httpx.AsyncClient, settings: Settings) -> None:
    engine = make_engine(settings.database_url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE jobs RENAME TO gone"))
    engine.dispose()
    answer = await client.get("/v1/jobs")
    check(answer, 500, "internal_error", None)
    assert "sql" not in answer.text.lower()
