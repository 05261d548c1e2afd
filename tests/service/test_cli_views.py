from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from pipelines.specs.documents import (
    ExampleToken,
    JobResult,
    MinimalPairScores,
    Progress,
    TaskScores,
    UnseenTextScores,
)
from service.cli.follow import PlainView
from service.cli.inputs import absolute_paths
from service.cli.live import LiveView
from service.cli.render import duration, in_short, marked_sentence, sentence_legend, tasks_table
from service.cli.result_tables import result_tables
from service.http.schemas import JobPublic, Links
from service.records import JobFailure
from service.states import JobState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def public(state: JobState = JobState.RUNNING, **changes: Any) -> JobPublic:
    told = {key: changes.pop(key) for key in ("stage", "step", "fraction", "message", "evaluation") if key in changes}
    progress = Progress(num_train_steps=100, heartbeat_at=NOW, **told) if told else None
    fields = {"attempt": 1, "failure": None, **changes}
    return JobPublic(
        job_id="j",
        name="n",
        kind="pretrain",
        state=state,
        created_at=NOW,
        started_at=None,
        finished_at=None,
        cancel_requested=False,
        progress=progress,
        result=None,
        links=Links(self="/v1/jobs/j", logs="/v1/jobs/j/logs"),
        **fields,
    )


def token(shown: str, original: str | None = None, probability: float = 0.0) -> ExampleToken:
    return ExampleToken(token=shown, original=original or shown, replaced_probability=probability)


def test_a_marked_sentence_shows_marks_and_originals() -> None:
    tokens = [token("the"), token("cat", "dog", 0.9), token("bark", probability=0.6), token("##s"), token(".")]
    assert marked_sentence(tokens).plain == "the [cat](dog) [bark]s."
    assert marked_sentence([token("cat", "dog", 0.3)]).plain == "cat?(dog)"
    assert "1 of 5 tokens were replaced; 2 are marked, 1 of them rightly" in sentence_legend(tokens)


def test_brackets_of_the_text_itself_are_not_markup() -> None:
    assert marked_sentence([token("[UNK]"), token("[/red]")]).plain == "[UNK] [/red]"


@pytest.mark.parametrize(("seconds", "shown"), [(None, "–"), (5, "0:05"), (65, "1:05"), (3723, "1:02:03")])
def test_durations(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_a_traceback_is_shortened_to_its_first_and_last_line() -> None:
    assert in_short("It ended.\nTraceback\n  File\nImportError: x\n") == "It ended. … ImportError: x"
    assert in_short("It ended.") == "It ended."


def test_the_plain_view_says_each_thing_once() -> None:
    lines: list[str] = []
    view = PlainView(lines.append, interval_seconds=3600)
    for _ in range(3):
        view.update(public(stage="prepare", fraction=0.5, message="tokenising"))
    for step in (1, 2, 3):
        view.update(public(stage="train", step=step, evaluation={"auc": 0.75}))
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        "RUNNING",
        "prepare  50%  tokenising",
        "train  step 1/100",
        "held out: auc 0.75",
    ]


def test_an_earlier_attempts_progress_is_not_shown() -> None:
    lines: list[str] = []
    PlainView(lines.append).update(public(JobState.STARTING, attempt=2, stage="train", step=5))
    assert len(lines) == 1


def test_the_plain_view_tells_of_another_attempt() -> None:
    lines: list[str] = []
    failure = JobFailure(code="lost", message="The head died.", attempt=1)
    PlainView(lines.append).update(public(JobState.STARTING, attempt=2, failure=failure))
    assert "STARTING, attempt 2" in lines[0]
    assert "attempt 1 failed: The head died." in lines[1]


def test_the_live_view_fills_a_bar_a_stage() -> None:
    out = io.StringIO()
    with LiveView(Console(file=out, force_terminal=True, width=120)) as view:
        view.update(public(JobState.QUEUED))
        view.update(public(stage="prepare", message="reading [b]"))
        view.update(public(stage="train", step=50, evaluation={"discriminator_auc": 0.75}))
        view.note("a note [x]")
        view.update(public(JobState.SUCCEEDED, stage="record"))
    assert all(stage in out.getvalue() for stage in ("prepare", "train", "evaluate", "record", "100%", "a note [x]"))


def test_local_paths_are_named_from_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    sources = [{"type": "text", "uris": ["a/*.txt", "s3://b/c", "/d"]}, {"type": "python_docs"}, 3]
    weights = {"type": "transformers", "discriminator_uri": "a/b", "generator_uri": "s3://c/d"}
    document = {"corpus": {"sources": sources}, "tokenizer": {"uri": "vocab.txt"}, "initialization": weights}
    found = absolute_paths(document)
    assert found["corpus"]["sources"][0]["uris"] == [f"{tmp_path}/a/*.txt", "s3://b/c", "/d"]
    assert found["corpus"]["sources"][1:] == sources[1:]
    assert found["tokenizer"] == {"uri": f"{tmp_path}/vocab.txt"}
    assert found["initialization"] == weights | {"discriminator_uri": f"{tmp_path}/a/b"}
    assert absolute_paths({"corpus": 3, "tokenizer": None}) == {"corpus": 3, "tokenizer": None}


def test_files_of_finetuning_specs_are_named_from_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """At any depth, in suites and probes too; columns of the same names are left alone."""
    monkeypatch.chdir(tmp_path)
    task = {"type": "classification", "text": "train", "data": {"train": ["a.csv", "s3://b/c.csv"], "test": "d.csv"}}
    named = {**task, "data": {"train": [f"{tmp_path}/a.csv", "s3://b/c.csv"], "test": f"{tmp_path}/d.csv"}}
    spec = {
        "kind": "finetune",
        "model": {"type": "files", "uri": "m"},
        "suite": {"type": "tasks", "tasks": {"x": task}},
    }
    assert absolute_paths(spec) == {
        "kind": "finetune",
        "model": {"type": "files", "uri": f"{tmp_path}/m"},
        "suite": {"type": "tasks", "tasks": {"x": named}},
    }
    assert absolute_paths({"kind": "pretrain", "probe": {"tasks": {"x": task}}})["probe"] == {"tasks": {"x": named}}
    assert absolute_paths({"kind": "finetune", "task": 3}) == {"kind": "finetune", "task": 3}


def test_files_of_evaluation_specs_are_named_from_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    spec = {
        "kind": "evaluate",
        "generator": {"type": "files", "uri": "g", "tokenizer_uri": "v"},
        "minimal_pairs": {"uris": "pairs/*.jsonl"},
        "unseen_text": {"sources": {"news": {"type": "text", "uris": ["a.txt", "s3://b/c"]}}},
    }
    assert absolute_paths(spec) == {
        "kind": "evaluate",
        "generator": {"type": "files", "uri": f"{tmp_path}/g", "tokenizer_uri": f"{tmp_path}/v"},
        "minimal_pairs": {"uris": f"{tmp_path}/pairs/*.jsonl"},
        "unseen_text": {"sources": {"news": {"type": "text", "uris": [f"{tmp_path}/a.txt", "s3://b/c"]}}},
    }


def test_the_tables_of_an_evaluation_show_what_people_wrote() -> None:
    """Brackets are a phenomenon's own, and no mark-up."""
    pairs = [
        MinimalPairScores(network=network, accuracy=accuracy, by_phenomenon={"subject [sg][/x]": 0.5}, num_pairs=2)
        for network, accuracy in (("discriminator", 0.75), ("generator", 0.25))
    ]
    text = UnseenTextScores(
        source="news", figures={"generator_loss": 3.5}, num_rows=1, num_tokens=6000, num_documents=1
    )
    console = Console(record=True, width=120, file=io.StringIO())
    for table in result_tables(JobResult(state="SUCCEEDED", minimal_pairs=tuple(pairs), unseen_text=(text,))):
        console.print(table)
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in console.export_text().splitlines()]
    assert ["subject [sg][/x]", "0.500", "0.500"] in lines
    assert ["mean over files", "0.750", "0.250"] in lines
    assert ["generator loss", "3.5"] in lines
    assert ["tokens", "6,000"] in lines


def test_the_table_of_tasks_has_baselines_and_the_mean() -> None:
    scores = TaskScores(
        task="intents",
        metric="macro_f1",
        median=0.8125,
        spread={"std": 0.01},
        by_seed={"1": 0.8, "2": 0.825},
        best_seed=2,
        baselines={"tfidf": {"macro_f1": 0.75}},
        num_train_examples=10,
        num_validation_examples=5,
        examples_per_second=100.0,
    )
    other = scores.model_copy(update={"task": "similar", "metric": "pearson", "median": None, "baselines": {}})
    result = JobResult(state="SUCCEEDED", tasks=(scores, other), evaluation={"mean": 40.625})
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(tasks_table(result))
    lines = console.export_text().splitlines()
    row = next(line for line in lines if "intents" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "intents",
        "macro f1",
        "0.8125",
        "0.01",
        "2",
        "0.75",
        "",
    ]
    assert any("mean" in line and "40.6" in line for line in lines)
