"""A search over REST whose driver is killed half way: nothing is run again, and everything is on record at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest
import transformers
import yaml
from main_job import SPEC, finished, kill_process, wait_for

from pipelines.specs.parsing import load_spec
from pipelines.specs.pretrain import PretrainSpec
from service.client import ElectraClient
from service.local import LocalStack

pytestmark = pytest.mark.slow

WEIGHT, RATIO = "objective.discriminator_weight", "model.generator_size_ratio"


def search() -> dict[str, Any]:
    base = {key: SPEC[key] for key in ("preset", "corpus", "tokenizer", "model", "optimizer", "evaluation")}
    training = {**SPEC["training"], "log_interval_steps": 10}
    return {
        "kind": "search",
        "name": "end-to-end-search",
        "base": {**base, "training": training, "compute": {"num_workers": 1}},
        "space": {
            WEIGHT: {"type": "log_uniform", "low": 1, "high": 100},
            RATIO: {"type": "choice", "values": [0.25, 0.5, 1.0]},
        },
        "objective": {"type": "fixed_corruption"},
        "budget": {"flops": 2e11},
        "num_trials": 6,
        "searcher": {"num_startup_trials": 3},
        "final": {"num_best": 1, "seeds": [1, 2]},
        "transfer_to": "small",
    }


def scored(folder: Path) -> dict[str, int]:
    """Every score that was put down, and when."""
    found = (folder / "trials").glob("*/scored_*.json")
    return {f"{path.parent.name}/{path.name}": path.stat().st_mtime_ns for path in found}


def test_a_search_survives_its_driver(stack: LocalStack) -> None:
    with ElectraClient(stack.service_url) as client:
        job_id = client.submit(search()).job_id
        folder = stack.home / "storage" / "jobs" / job_id
        wait_for(client, job_id, lambda job: len(scored(folder)) >= 3, "three scores")
        kill_process(stack, "python -m pipelines.main", job_id)
        before = scored(folder)
        detail = finished(client, job_id).detail
        trials = list(client.trials(job_id, sort="rank", is_final=False).items)
        finals = list(client.trials(job_id, is_final=True).items)
    assert detail.attempt == 2
    after = scored(folder)
    assert {name: after[name] for name in before} == before

    result = detail.result
    assert result is not None
    found = result.search
    assert found is not None
    assert found.num_trials == len(trials) == 6
    assert {one.state for one in trials} <= {"COMPLETED", "STOPPED"}
    assert len({one.folder for one in trials}) == 6
    assert trials[0].model_copy(update={"rungs": ()}) == found.leaderboard[0]
    assert {(one.seed, one.state) for one in finals} == {(1, "COMPLETED"), (2, "COMPLETED")}
    assert {one.is_base for one in found.settings} == {True, False}
    assert all(len(one.by_seed) == 2 for one in found.settings)
    # The same FLOPs for networks of other sizes: a larger generator has fewer steps.
    steps = {one.point[RATIO]: one.num_train_steps for one in trials}
    assert sorted(steps, key=lambda ratio: -steps[ratio]) == sorted(steps, key=lambda ratio: float(str(ratio)))
    assert found.flops_trials <= found.flops_without_stopping <= 6 * 2e11

    registry = mlflow.MlflowClient(stack.mlflow_url)
    assert result.mlflow_run_id is not None
    parent = registry.get_run(result.mlflow_run_id)
    assert parent.info.status == "FINISHED"
    query = f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    children = registry.search_runs([parent.info.experiment_id], query)
    assert len(children) == 6 + 4
    by_number = {int(child.data.params["number"]): child for child in children}
    for trial in trials:
        assert by_number[trial.number].data.metrics["fixed_corruption_auc"] == trial.score
        assert float(by_number[trial.number].data.params[WEIGHT]) == trial.point[WEIGHT]
    for name in ("search.html", "parallel.png", "quality_vs_flops.png", "search.md", "trials.json"):
        assert (folder / "report" / name).stat().st_size > 0
    assert found.verdict in (folder / "report" / "search.md").read_text()
    assert len(json.loads((folder / "report" / "trials.json").read_text())) >= 10
    assert {one.loss for one in found.loss_agreement} >= {"generator_loss", "discriminator_loss"}

    main = result.models[0]
    assert (main.name, main.network) == ("end-to-end-search", "discriminator")
    network, info = transformers.ElectraForPreTraining.from_pretrained(main.export_uri, output_loading_info=True)
    assert not info["missing_keys"]
    assert network.config.hidden_size == 64
    assert found.transfer_uri is not None
    larger = load_spec(Path(found.transfer_uri).read_bytes())
    assert isinstance(larger, PretrainSpec)
    assert larger.preset == "small"
    if found.winner:
        assert larger.objective.discriminator_weight == found.winner[WEIGHT]
    assert yaml.safe_load(Path(found.transfer_uri).read_text())["name"] == "end-to-end-search-small"
    assert not list((folder / "trials").glob("*/checkpoints/*"))
