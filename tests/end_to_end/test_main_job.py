"""A spec sent over REST becomes a trained, recorded, exported model that Transformers loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mlflow
import numpy as np
import pytest
import torch
import yaml
from main_job import NUM_STEPS, SPEC, MainJob, wait_for, wait_for_step, wait_until_listed

from pipelines.specs.parsing import resolve_spec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.tokenizer import load_tokenizer
from pipelines.training.checkpoint import list_checkpoints, read_state
from pipelines.training.task import build_networks
from service.client import ElectraClient
from service.local import LocalStack

# The first job prepares the corpus, whichever test is asked for.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("main_job")]
ROOT = Path(__file__).parents[2]


def test_the_models_have_learned_more_than_the_baselines(main_job: MainJob):
    result = main_job.detail.result
    assert result.evaluation["discriminator_auc"] > 0.55
    assert result.evaluation["discriminator_loss"] < result.baselines["discriminator_loss"]
    assert result.evaluation["generator_accuracy"] > result.baselines["generator_accuracy"]
    assert any(token.token != token.original for token in result.example)


def test_the_run_is_on_record(stack: LocalStack, main_job: MainJob):
    client = mlflow.MlflowClient(stack.mlflow_url)
    run = client.get_run(main_job.detail.result.mlflow_run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["electra.job_id"] == main_job.detail.job_id
    assert run.data.params["model.hidden_size"] == "64"
    steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "train/generator_loss")]
    assert steps == list(range(25, NUM_STEPS + 1, 25))
    names = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"spec.json", "corpus_manifest.json", "report"} <= names
    reports = {file.path for file in client.list_artifacts(run.info.run_id, "report")}
    assert {"report/losses.png", "report/learning_rate.png", "report/model_card.md"} <= reports
    for model in main_job.detail.result.models:
        version = client.get_model_version(model.name, model.version)
        assert version.run_id == run.info.run_id
        assert "Held-out figures" in version.description
        assert client.get_model_version_by_alias(model.name, "newest") is not None


def test_the_registered_models_load_through_their_flavour(stack: LocalStack, main_job: MainJob):
    import mlflow.transformers

    mlflow.set_tracking_uri(stack.mlflow_url)
    fill = mlflow.transformers.load_model("models:/end-to-end-generator@newest")
    assert len(fill("the [MASK] of the function", top_k=3)) == 3


@pytest.mark.parametrize(
    ("network", "architecture", "may_be_fresh"),
    [
        ("discriminator", "ElectraForPreTraining", ""),
        ("generator", "ElectraForMaskedLM", ""),
        ("discriminator", "ElectraForMaskedLM", "generator_"),
        ("generator", "ElectraForPreTraining", "discriminator_predictions"),
    ],
)
def test_transformers_loads_every_export(main_job: MainJob, network, architecture, may_be_fresh):
    import transformers

    model_class = getattr(transformers, architecture)
    _, info = model_class.from_pretrained(main_job.exports[network], output_loading_info=True)
    missing = {key for key in info["missing_keys"] if not (may_be_fresh and key.startswith(may_be_fresh))}
    assert not missing
    assert bool(info["missing_keys"]) == bool(may_be_fresh)
    if not may_be_fresh:
        assert not info["unexpected_keys"]


def test_exports_give_our_logits(main_job: MainJob):
    import transformers

    spec = resolve_spec(main_job.detail.spec)
    corpus = PreparedCorpus.read(main_job.detail.result.corpus["uri"])
    job_folder = main_job.exports["generator"].parents[1]
    networks = build_networks(spec, corpus).eval()
    networks.load_state_dict(read_state(list_checkpoints(str(job_folder / "checkpoints"))[-1])["networks"])
    ids = torch.randint(5, corpus.vocab_size, (4, 64), generator=torch.Generator().manual_seed(0))
    everywhere = torch.arange(64).expand(4, 64)
    discriminator = transformers.ElectraForPreTraining.from_pretrained(main_job.exports["discriminator"]).eval()
    generator = transformers.ElectraForMaskedLM.from_pretrained(main_job.exports["generator"]).eval()
    with torch.no_grad():
        torch.testing.assert_close(
            networks.discriminator_logits(ids, None), discriminator(ids).logits, atol=1e-5, rtol=1e-5
        )
        torch.testing.assert_close(
            networks.generator_logits(ids, None, everywhere), generator(ids).logits, atol=1e-5, rtol=1e-5
        )


def test_auto_tokenizer_gives_our_ids(main_job: MainJob):
    import transformers

    ours = load_tokenizer(PreparedCorpus.read(main_job.detail.result.corpus["uri"]).tokenizer_uri)
    theirs = transformers.AutoTokenizer.from_pretrained(main_job.exports["discriminator"])
    lines = [line for line in Path(np.__file__).read_text().splitlines() if line.strip()][:1000]
    assert len(lines) > 300
    for line in lines:
        assert theirs(line)["input_ids"] == ours.encode(line).ids


def test_ray_job_submit_gives_the_same_artifacts_and_record(stack: LocalStack, main_job: MainJob, tmp_path: Path):
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    submit_by_ray(stack, tmp_path, "pt-by-ray")
    job_folder = Path(stack.storage_uri) / "jobs" / "pt-by-ray"
    first_folder = main_job.exports["generator"].parents[1]
    assert files_of(job_folder) == files_of(first_folder)
    for network, folder in main_job.exports.items():
        mine = (job_folder / "exports" / network / "model.safetensors").read_bytes()
        assert mine == (folder / "model.safetensors").read_bytes()
    client = mlflow.MlflowClient(stack.mlflow_url)
    runs = {
        run.data.tags["electra.job_id"]: run
        for run in client.search_runs([main_job.detail.result.mlflow_experiment_id])
    }
    ours, theirs = runs[main_job.detail.job_id], runs["pt-by-ray"]
    assert ours.data.params == theirs.data.params
    assert ours.data.metrics.keys() == theirs.data.metrics.keys()


def test_a_job_by_ray_job_submit_is_listed_as_one_of_the_services_own(
    client: ElectraClient, stack: LocalStack, main_job: MainJob, tmp_path: Path
):
    """While it runs, so that it can be paused; what goes on with it after that is an attempt of the service's."""
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    submit_by_ray(stack, tmp_path, "pt-by-ray-too", "--set", "training.num_train_steps=100000", no_wait=True)

    wait_until_listed(client, "pt-by-ray-too")
    running = wait_for_step(client, "pt-by-ray-too", 50)
    assert (running.state, running.attempt, running.name) == ("RUNNING", 1, main_job.detail.name)
    client.pause("pt-by-ray-too")
    wait_for(client, "pt-by-ray-too", lambda job: job.state == "PAUSED", "PAUSED")
    assert "training" in client.logs("pt-by-ray-too")
    client.resume("pt-by-ray-too")
    resumed = wait_for(client, "pt-by-ray-too", lambda job: job.state == "RUNNING" and job.attempt == 2, "attempt 2")
    assert resumed.progress is not None
    wait_for_step(client, "pt-by-ray-too", resumed.progress.step or 1)
    client.cancel("pt-by-ray-too")
    wait_for(client, "pt-by-ray-too", lambda job: job.state == "CANCELLED", "CANCELLED")


def test_cancel_keeps_the_last_checkpoint(client: ElectraClient, stack: LocalStack):
    job_id = client.submit(SPEC, ["training.num_train_steps=100000"]).job_id
    wait_for_step(client, job_id, 100)
    client.cancel(job_id)
    job = wait_for(client, job_id, lambda job: job.state == "CANCELLED", "CANCELLED")
    checkpoints = list_checkpoints(str(Path(stack.storage_uri) / "jobs" / job_id / "checkpoints"))
    assert checkpoints[-1].step >= 100
    run = mlflow.MlflowClient(stack.mlflow_url).get_run(job.result.mlflow_run_id)
    assert run.info.status == "KILLED"


def test_a_corpus_that_cannot_be_trained_on_fails_with_a_report(client: ElectraClient, tmp_path: Path):
    """Half the records are broken: the job says which, by file and line, and is not tried again."""
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": "' + "a word " * 20 + '"}\n{"text": 5}\n' * 50)
    job = client.submit({**SPEC, "corpus": {"sources": [{"type": "jsonl", "uris": [str(broken)]}]}})
    ended = wait_for(client, job.job_id, lambda job: job.state in ("SUCCEEDED", "FAILED"), "its end")
    assert (ended.state, ended.failure.code, ended.failure.stage, ended.attempt) == ("FAILED", "data", "prepare", 1)
    assert any("broken.jsonl:2" in line for line in ended.failure.details)


def submit_by_ray(stack: LocalStack, folder: Path, job_id: str, *arguments: str, no_wait: bool = False) -> None:
    """`ray job submit` of the `spec.yaml` in a folder."""
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(stack.ray_token_path),
        "RAY_ADDRESS": stack.ray_url,
    }
    command = [str(Path(sys.executable).parent / "ray"), "job", "submit", "--working-dir", str(folder)]
    entrypoint = ["python", "-m", "pipelines.main", "--spec", "spec.yaml", "--job-id", job_id, *arguments]
    command += [*(["--no-wait"] if no_wait else []), "--", *entrypoint]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def files_of(folder: Path) -> set[str]:
    """Relative paths, leaving out what carries the attempt or process, or belongs to the way the job was sent."""
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {path for path in paths if not path.startswith(("ray_train/", "logs/", "tenures/", "control.json"))}


def assert_same_weights(left: MainJob, right: MainJob) -> None:
    for network, tensors in right.weights.items():
        for name, tensor in tensors.items():
            assert np.array_equal(left.weights[network][name], tensor), name
