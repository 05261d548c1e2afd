"""A suite finetuned from the registered model, its driver killed in the middle: nothing finished is run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest
from main_job import MainJob, finished, kill_process, wait_for

from pipelines.specs.prediction import PredictInput
from service.client import ApiError, ElectraClient
from service.local import LocalStack

pytestmark = pytest.mark.slow

GOOD, BAD = ("works", "returns", "returned", "valid"), ("fails", "raises", "error", "invalid")


def rows(count: int) -> str:
    """Sentences of the corpus's own words, good news or bad."""
    lines = []
    for index in range(count):
        word = (GOOD if index % 2 else BAD)[index // 2 % 4]
        text = f"the function number {index % 50} {word} in module {index // 8}"
        lines.append(json.dumps({"text": text, "label": "good" if index % 2 else "bad"}))
    return "\n".join(lines) + "\n"


def tagged(count: int) -> str:
    """Words that are names of functions or not."""
    lines = []
    for index in range(count):
        tokens = ["call", f"f{index}", "in", "the", "module"]
        lines.append("\n".join(f"{token}\t{'NAME' if place == 1 else 'WORD'}" for place, token in enumerate(tokens)))
    return "\n\n".join(lines) + "\n"


def spec(folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("train.jsonl", rows(4000)),
        ("dev.jsonl", rows(200)),
        ("train.conll", tagged(400)),
        ("dev.conll", tagged(40)),
    ):
        (folder / name).write_text(content)
    return {
        "kind": "finetune",
        "name": "end-to-end-finetuned",
        "model": {"type": "registered", "name": "end-to-end"},
        "suite": {
            "type": "tasks",
            "tasks": {
                "verdicts": {
                    "type": "classification",
                    "data": {"train": str(folder / "train.jsonl"), "validation": str(folder / "dev.jsonl")},
                },
                "names": {
                    "type": "token_classification",
                    "data": {"train": str(folder / "train.conll"), "validation": str(folder / "dev.conll")},
                },
            },
        },
        "training": {"seeds": [1, 2], "num_epochs": 2, "max_sequence_length": 32, "learning_rate": 1e-3},
        "compute": {"num_workers": 2},
    }


@pytest.fixture(scope="module")
def suite(stack: LocalStack, main_job: MainJob, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, int]]:
    """The finished job, and when the runs that were finished before the kill had ended."""
    with ElectraClient(stack.service_url) as client:
        job_id = client.submit(spec(tmp_path_factory.mktemp("labelled"))).job_id
        folder = stack.home / "storage" / "jobs" / job_id / "seeds"

        def ended() -> dict[str, int]:
            return {str(path): path.stat().st_mtime_ns for path in sorted(folder.glob("*/*/result.json"))}

        wait_for(client, job_id, lambda job: bool(ended()), "its first finished run")
        before = ended()
        kill_process(stack, "python -m pipelines.main", job_id)
        return finished(client, job_id).detail, before


def test_finished_runs_are_not_run_again(stack: LocalStack, suite: tuple[Any, dict[str, int]]) -> None:
    detail, before = suite
    assert detail.attempt == 2
    assert before
    assert all(Path(path).stat().st_mtime_ns == ended for path, ended in before.items())
    runs = mlflow.MlflowClient(stack.mlflow_url).search_runs(
        [detail.result.mlflow_experiment_id], f"tags.`mlflow.parentRunId` = '{detail.result.mlflow_run_id}'"
    )
    assert sorted(run.data.tags["electra.unit"] for run in runs) == ["names/1", "names/2", "verdicts/1", "verdicts/2"]
    assert all(run.info.status == "FINISHED" for run in runs)
    kept = Path(next(iter(before))).parents[2].glob("*/*/weights.safetensors")
    assert sorted(path.parts[-3] for path in kept) == ["names", "verdicts"], "weights of the best seeds alone"


def test_scores_are_medians_beside_baselines(suite: tuple[Any, dict[str, int]]) -> None:
    result = suite[0].result
    scores = {task.task: task for task in result.tasks}
    verdicts, names = scores["verdicts"], scores["names"]
    assert verdicts.median is not None
    assert verdicts.median > verdicts.baselines["majority"]["accuracy"] + 0.2
    assert set(verdicts.by_seed) == {"1", "2"}
    assert result.evaluation["mean"] == pytest.approx(50 * (verdicts.median + names.median))


@pytest.mark.filterwarnings("default")  # MLflow's pyfunc warns of its own modules while it imports them
def test_the_registered_classifier_answers_in_mlflow(stack: LocalStack, suite: tuple[Any, dict[str, int]]) -> None:
    """What `mlflow models predict` runs gives the label and the probability that the run wrote down."""
    detail = suite[0]
    best = next(task.best_seed for task in detail.result.tasks if task.task == "verdicts")
    folder = stack.home / "storage" / "jobs" / detail.job_id / "seeds" / "verdicts" / str(best)
    expected = [json.loads(line) for line in (folder / "predictions-validation.jsonl").read_text().splitlines()][:3]
    texts = [json.loads(line)["text"] for line in rows(3).splitlines()]
    mlflow.set_tracking_uri(stack.mlflow_url)
    answer = mlflow.pyfunc.load_model("models:/end-to-end-finetuned-verdicts@newest").predict(texts)
    assert answer["label"].tolist() == [one["prediction"] for one in expected]
    assert answer["score"].tolist() == pytest.approx([one["probability"] for one in expected], abs=1e-4)


def test_registered_models_are_tried_over_rest(
    stack: LocalStack, client: ElectraClient, suite: tuple[Any, dict[str, int]]
) -> None:
    """The classifier answers as its run did, and the encoder it came from marks tokens; nothing of it stays behind."""
    detail = suite[0]
    best = next(task.best_seed for task in detail.result.tasks if task.task == "verdicts")
    folder = stack.home / "storage" / "jobs" / detail.job_id / "seeds" / "verdicts" / str(best)
    expected = [json.loads(line) for line in (folder / "predictions-validation.jsonl").read_text().splitlines()][:3]
    inputs = [PredictInput(text=json.loads(line)["text"]) for line in rows(3).splitlines()]
    answer = client.predict("end-to-end-finetuned-verdicts", inputs)
    assert [one.label for one in answer.predictions] == [one["prediction"] for one in expected]
    probabilities = [one.probabilities[one.label] for one in answer.predictions]
    assert probabilities == pytest.approx([one["probability"] for one in expected], abs=1e-4)
    told = client.predict("end-to-end", inputs[:1], alias="1")
    assert (told.version, told.architecture) == ("1", "ElectraForPreTraining")
    text = inputs[0].text
    assert "".join(text[token.start : token.end] for token in told.predictions[0].tokens) == text.replace(" ", "")
    with pytest.raises(ApiError) as refused:
        client.predict("end-to-end", inputs, alias="nobodys")
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")
    assert not list((stack.home / "storage" / "predictions").glob("*"))
