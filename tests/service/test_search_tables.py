"""A search on the command line: its plan, its trials, its end."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_service import serve_desk
from rich.console import Console
from rich.table import Table
from service_doubles import MemoryFolders
from typer.testing import CliRunner, Result

from pipelines.specs.documents import JobResult, Progress
from pipelines.specs.parsing import load_spec
from pipelines.specs.plan import flops_until
from pipelines.specs.search import SearchSpec
from pipelines.specs.trial_documents import SearchOutcome, SettingScores, TrialList, TrialState, TrialSummary
from pipelines.specs.trials import trial_spec
from service.cli import app
from service.cli.result_tables import result_tables
from service.cli.trial_tables import search_tables, trials_table, value_text
from service.http.desk import Desk
from service.ledger.store import SqlJobStore
from service.settings import Settings
from service.states import JobState

WEIGHT, SHARING = "objective.discriminator_weight", "model.sharing"
SEARCH = f"""
kind: search
base: {{preset: tiny, compute: {{num_workers: 1}}}}
space:
  {WEIGHT}: {{type: log_uniform, low: 1, high: 100}}
objective: {{type: fixed_corruption}}
budget: {{flops: 1e+12}}
num_trials: 12
final: {{num_best: 3, seeds: [1, 2, 3, 4]}}
compute: {{max_concurrent_trials: 5}}
"""


@pytest.fixture(autouse=True)
def nothing_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELECTRA_URL", raising=False)
    monkeypatch.setenv("ELECTRA_HOME", str(tmp_path / "no-stack"))


@pytest.fixture
def job_id(settings: Settings, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a search that was submitted to a service that answers."""
    (tmp_path / "search.yaml").write_text(SEARCH)
    with serve_desk(settings, desk) as address:
        monkeypatch.setenv("ELECTRA_URL", address)
        taken = run("submit", str(tmp_path / "search.yaml"), "--json")
        assert taken.exit_code == 0, taken.output
        yield json.loads(taken.stdout)["job_id"]


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=text, env={"COLUMNS": "200"})


def trial(number: int, score: float | None = 0.5, state: TrialState = "COMPLETED", **fields: Any) -> TrialSummary:
    given = {"point": {}, "seed": 1, "step": 1234, "num_train_steps": 5000, "flops": 2.345e12}
    return TrialSummary(number=number, state=state, score=score, **{**given, **fields})


def lines_of(*tables: Table) -> list[list[str]]:
    """Cells of every line, as a wide terminal shows them."""
    console = Console(record=True, width=200, file=io.StringIO())
    for table in tables:
        console.print(table)
    return cells_of(console.export_text())


def cells_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in text.splitlines()]


def outcome(**fields: Any) -> SearchOutcome:
    given = {
        "metric": "probe_mean",
        "mode": "max",
        "num_trials": 2,
        "num_by_state": {},
        "verdict": "The base is taken.",
    }
    return SearchOutcome(**{**given, "flops_trials": 1e12, "flops_without_stopping": 2e12, **fields})


def test_trials_have_a_line_each_with_the_value_of_each_path() -> None:
    lines = lines_of(
        trials_table(
            [
                trial(0, 0.123456, point={WEIGHT: 12.34567, SHARING: "all"}),
                trial(1, None, "RUNNING", point={SHARING: None}, step=0, flops=0.0),
                trial(2, 0.25, is_final=True),
                trial(3, None, "INVALID", point={"masking.whole_word": True}, step=0, num_train_steps=0, flops=0.0),
            ],
            "probe_mean",
        )
    )
    assert ["trial", "state", WEIGHT, SHARING, "masking.whole_word", "probe_mean", "step", "FLOPs"] in lines
    assert ["0", "completed", "12.35", "all", "", "0.1235", "1,234/5,000", "2.34e+12"] in lines
    assert ["1", "running", "", "None", "", "", "0/5,000", ""] in lines
    assert ["2 final", "completed", "", "", "", "0.25", "1,234/5,000", "2.34e+12"] in lines
    assert ["3", "invalid", "", "", "True", "", "", ""] in lines


@pytest.mark.parametrize(
    ("value", "shown"), [(0.000123456, "0.0001235"), (3, "3"), (True, "True"), ("all", "all"), (None, "None")]
)
def test_values_of_a_path(value: object, shown: str) -> None:
    assert str(value_text(value)) == shown


@pytest.mark.parametrize("word", ["[red]", "[/x]"])
def test_brackets_of_a_point_are_no_mark_up(word: str) -> None:
    """A point that is no spec has any words, and is listed with its reason."""
    assert ["0", "invalid", word, "", "", ""] in lines_of(
        trials_table(
            [trial(0, None, "INVALID", point={SHARING: word}, step=0, num_train_steps=0, flops=0.0)], "probe_mean"
        )
    )


def test_the_final_round_comes_before_the_best_trials() -> None:
    settings = (
        SettingScores(
            point={WEIGHT: 20.0},
            is_base=False,
            by_seed={"1": 0.6, "2": 0.7},
            mean=0.65,
            low=0.612345,
            high=0.687655,
            flops=1.0,
            better_than_base_p=0.012345,
        ),
        SettingScores(point={}, is_base=True, by_seed={"1": 0.5}, mean=0.5, flops=1.0),
        SettingScores(point={WEIGHT: 3.0}, is_base=False, by_seed={}, mean=None, flops=1.0),
    )
    final, best = search_tables(outcome(settings=settings, leaderboard=(trial(0),)))
    lines = lines_of(final)
    assert ["setting", WEIGHT, "mean probe_mean", "interval", "seeds", "p against the base"] in lines
    assert ["", "20", "0.65", "0.6123 to 0.6877", "2", "0.0123"] in lines
    assert ["base", "", "0.5", "", "1", ""] in lines
    assert ["", "3", "", "", "0", ""] in lines
    assert best.title == "Trials"


def test_a_study_has_one_table_with_the_bases_own_values() -> None:
    settings = (
        SettingScores(point={SHARING: "none"}, is_base=False, by_seed={"1": 0.6, "2": 0.7}, mean=0.65, flops=2.5e12),
        SettingScores(point={}, is_base=True, by_seed={"1": 0.5}, diverged=(2,), mean=0.5, flops=1e12),
        SettingScores(point={SHARING: "all"}, is_base=False, by_seed={}, mean=None, flops=0.0),
    )
    (table,) = search_tables(outcome(settings=settings, is_study=True, base={SHARING: "embeddings"}))
    assert table.title == "Study: means over seeds"
    lines = lines_of(table)
    assert ["setting", SHARING, "mean probe_mean", "spread", "seeds", "FLOPs"] in lines
    assert ["", "none", "0.65", "0.6 to 0.7", "2", "2.5e+12"] in lines
    assert ["base", "embeddings", "0.5", "0.5 to 0.5", "1, 1 diverged", "1e+12"] in lines
    assert ["", "all", "", "", "0", ""] in lines


def test_without_a_final_round_there_are_the_best_trials() -> None:
    (table,) = search_tables(outcome(leaderboard=(trial(0),)))
    assert table.title == "Trials"


def test_a_searchs_tables_come_before_the_winners_figures() -> None:
    result = JobResult(
        state="SUCCEEDED", search=outcome(leaderboard=(trial(0),)), evaluation={"discriminator_auc": 0.8}
    )
    search, figures = result_tables(result)
    assert search.title == "Trials"
    assert any("discriminator" in line[0] for line in lines_of(figures))


def test_trials_are_listed_the_best_first(job_id: str, folders: MemoryFolders) -> None:
    trials = tuple(trial(n, score, point={WEIGHT: 2.0}) for n, score in enumerate((0.5, None, 0.75)))
    folders.trials[job_id] = TrialList(metric="probe_mean", mode="max", trials=trials)
    shown = run("trials", job_id)
    assert shown.exit_code == 0
    assert [line[0] for line in cells_of(shown.stdout) if line[0].isdigit()] == ["2", "0", "1"]
    assert "probe_mean" in shown.stdout
    listed = json.loads(run("trials", job_id, "--sort", "number", "--json").stdout)
    assert [one["number"] for one in listed["items"]] == [0, 1, 2]
    assert (listed["metric"], listed["mode"], listed["total"]) == ("probe_mean", "max", 3)


def test_that_there_are_more_trials_is_said(job_id: str, folders: MemoryFolders) -> None:
    trials = tuple(trial(n) for n in range(5))
    folders.trials[job_id] = TrialList(metric="probe_mean", mode="max", trials=trials)
    shown = run("trials", job_id, "--limit", "2")
    assert [line[0] for line in cells_of(shown.stdout) if line[0].isdigit()] == ["0", "1"]
    assert shown.stderr.strip() == "There are 5 trials: see more with --limit."
    assert run("trials", job_id, "--limit", "5").stderr == ""


def test_a_search_that_has_tried_nothing_says_so(job_id: str) -> None:
    shown = run("trials", job_id)
    assert (shown.exit_code, shown.stdout.strip()) == (0, "No trial has begun yet.")


@pytest.mark.usefixtures("job_id")
def test_a_job_of_another_kind_has_no_trials() -> None:
    other = json.loads(run("submit", "tiny", "--json").stdout)["job_id"]
    shown = run("trials", other)
    assert shown.exit_code == 4
    assert f"Only jobs of kind 'search' have trials; {other} is of kind 'pretrain'." in " ".join(shown.stderr.split())


@pytest.mark.usefixtures("job_id")
def test_trials_of_no_job_are_a_sentence() -> None:
    shown = run("trials", "nope")
    assert (shown.exit_code, shown.stderr.startswith("No job has the id")) == (4, True)


def test_trials_without_a_service_say_what_to_run() -> None:
    shown = run("trials", "j")
    assert (shown.exit_code, "electra up" in shown.stderr) == (3, True)


def test_a_running_search_shows_its_best_so_far(job_id: str, store: SqlJobStore) -> None:
    job = store.get(job_id)
    assert job is not None
    job = store.update(job, state=JobState.STARTING, attempt=1)
    told = Progress(
        attempt=1,
        stage="train",
        message="2 trials running",
        leaderboard=(trial(7, 0.625, point={WEIGHT: 2.5}),),
        heartbeat_at=job.created_at,
    )
    store.update(job, state=JobState.RUNNING, progress=told)
    lines = cells_of(run("show", job_id).stdout)
    assert ["trial", "state", WEIGHT, "score", "step", "FLOPs"] in lines
    assert ["7", "completed", "2.5", "0.625", "1,234/5,000", "2.34e+12"] in lines


def test_a_finished_search_shows_its_verdict(job_id: str, store: SqlJobStore) -> None:
    job = store.get(job_id)
    assert job is not None
    for state in (JobState.STARTING, JobState.RUNNING):
        job = store.update(job, state=state, attempt=1)
    found = outcome(leaderboard=(trial(3),), verdict="No setting is better than the base [by more than] seed noise.")
    result = JobResult(state="SUCCEEDED", search=found)
    store.update(job, state=JobState.SUCCEEDED, result=result, finished_at=job.created_at)
    shown = run("show", job_id).stdout
    assert "No setting is better than the base [by more than] seed noise." in " ".join(shown.split())
    assert any(line[0] == "3" for line in cells_of(shown))


def test_a_plan_of_a_search_counts_trainings_and_flops() -> None:
    search = load_spec(SEARCH)
    assert isinstance(search, SearchSpec)
    base = trial_spec(search, {})
    planned = json.loads(run("plan", "-", "--json", text=SEARCH).stdout)
    assert planned["kind"] == "search"
    assert (planned["num_trials"], planned["num_trials_at_a_time"]) == (12, 5)
    assert planned["num_final_trainings"] == (3 + 1) * 4
    one = planned["flops_per_trial"]
    assert 0.99e12 < one <= 1e12
    assert one == flops_until(base, 4096, base.training.num_train_steps)
    assert planned["base_num_train_steps"] == base.training.num_train_steps
    assert planned["flops_without_stopping"] == pytest.approx((12 + 16) * one)
    assert planned["num_cpus"] == 5 * base.compute.num_cpus
    assert (planned["num_invalid_points"], planned["warnings"]) == (0, [])
    assert planned["spec"]["space"][WEIGHT]["high"] == 100


def test_a_plan_of_a_search_is_for_people_too() -> None:
    shown = run("plan", "-", text=SEARCH)
    assert shown.exit_code == 0
    assert f"{WEIGHT}:" in shown.stdout
    assert ["num trials", "12"] in cells_of(shown.stdout)
    assert ["num final trainings", "16"] in cells_of(shown.stdout)


def test_a_plan_of_a_search_warns_and_names_points_that_cannot_be_tried() -> None:
    heads = "model.num_attention_heads: {type: choice, values: [3, 4]}"
    batches = "training.global_batch_size: {type: choice, values: [16, 32]}"
    text = "\n".join(
        [
            "kind: search",
            "base: {preset: tiny, model: {sharing: none}}",
            f"space: {{{heads}, {batches}, {WEIGHT}: {{type: int, low: 1, high: 9}}}}",
            "objective: {type: fixed_corruption}",
            "budget: {steps: 100}",
            "final: {seeds: [1, 2]}",
        ]
    )
    planned = json.loads(run("plan", "-", "--json", text=text).stdout)
    assert 0 < planned["num_invalid_points"] < planned["num_points_looked_at"]
    starts = (
        "objective.discriminator_weight (50) does next to nothing",
        f"space.{WEIGHT} does next to nothing where model.sharing is none",
        "final.seeds has 2: ",
        "budget is not in FLOPs, and a trial may take 2 times the computing of another",
        "cannot be tried: model.num_attention_heads = 3",
    )
    for start in starts:
        assert any(warning.startswith(start) for warning in planned["warnings"]), start


def test_a_grid_is_planned_with_all_its_points() -> None:
    grids = f"space: {{{WEIGHT}: {{type: grid, values: [1, 10, 50]}}, {SHARING}: {{type: grid, values: [all, none]}}}}"
    text = "\n".join(
        [
            "kind: search",
            "base: {preset: tiny}",
            grids,
            "searcher: {type: grid}",
            "objective: {type: fixed_corruption}",
            "budget: {steps: 100}",
            "final: null",
            "compute: {max_concurrent_trials: 50}",
        ]
    )
    planned = json.loads(run("plan", "-", "--json", text=text).stdout)
    assert (planned["num_trials"], planned["num_trials_at_a_time"], planned["num_final_trainings"]) == (6, 6, 0)
    assert (planned["num_points_looked_at"], planned["base_num_train_steps"]) == (6, 100)


def test_a_search_that_cannot_be_is_one_line_a_field() -> None:
    shown = run("plan", "-", text=SEARCH.replace(WEIGHT, "objective.lambda"))
    assert shown.exit_code == 2
    assert "  space.objective.lambda: must be a field of objective, one of name" in shown.stderr
    assert "Traceback" not in shown.output
