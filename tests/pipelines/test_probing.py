"""Probes on a real Ray cluster and MLflow store: checkpoints of a training run, finetuned and recorded."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import mlflow
import pytest
from training_task import make_task

from pipelines import storage
from pipelines.job import JobDirectory
from pipelines.probing.prober import Prober, prepare_probe
from pipelines.record import tracking
from pipelines.record.identity import RunIdentity
from pipelines.record.report import plot_probe
from pipelines.specs.documents import ProbePoint
from pipelines.specs.parsing import load_spec
from pipelines.specs.plan import flops_until
from pipelines.specs.spec_errors import SpecError
from pipelines.tasks.prepare import PreparedTask
from pipelines.training.task import TrainingTask
from pipelines.training.telemetry import SilentTelemetry
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker

pytestmark = pytest.mark.usefixtures("ray_cluster")


def rows(count: int, seed: int) -> str:
    """Words of the corpus's vocabulary; the label is told by one of them."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        label = rng.randint(0, 1)
        words = [f"w{rng.randint(100, 290)}" for _ in range(rng.randint(2, 6))]
        lines.append(json.dumps({"text": " ".join([f"w{5 + label}", *words]), "label": "ab"[label]}))
    return "\n".join(lines) + "\n"


@pytest.fixture
def task(tmp_path: Path) -> TrainingTask:
    (tmp_path / "train.jsonl").write_text(rows(200, 1))
    (tmp_path / "dev.jsonl").write_text(rows(40, 2))
    data = f"{{train: {tmp_path}/train.jsonl, validation: {tmp_path}/dev.jsonl}}"
    rules = "{seeds: [1, 2], max_sequence_length: 16, num_epochs: 4, learning_rate: 0.005, layerwise_decay: 1}"
    probe = f"{{interval_steps: 10, tasks: {{letters: {{type: classification, data: {data}}}}}, training: {rules}}}"
    return make_task(tmp_path, f"probe={probe}", "training.num_checkpoints_to_keep=10", name="jobs/pt-1")


def open_run(tmp_path: Path) -> RunIdentity:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    return tracking.open_run(store, "probes", "pt-1", "probes", {}, str(tmp_path / "artifacts"))


def prepared_of(task: TrainingTask, tmp_path: Path) -> tuple[PreparedTask, ...]:
    return prepare_probe(task.spec, task.corpus, str(tmp_path), lambda num_done: None)


def probed(
    task: TrainingTask, prepared: tuple[PreparedTask, ...], tmp_path: Path, run: RunIdentity
) -> tuple[ProbePoint, ...]:
    """Train with probes beside, to the end of both."""
    directory = JobDirectory(str(tmp_path / "jobs" / "pt-1"))
    with Prober(task, prepared, directory, run) as prober:
        train(task, Worker(), SilentTelemetry())
        return prober.wait(lambda: None)


def test_checkpoints_are_probed_and_recorded_at_their_steps(task: TrainingTask, tmp_path: Path) -> None:
    run = open_run(tmp_path)
    points = probed(task, prepared_of(task, tmp_path), tmp_path, run)
    assert [point.step for point in points] == [10, 20]
    assert [point.tokens for point in points] == [10 * 16 * 32, 20 * 16 * 32]
    assert [point.flops for point in points] == [flops_until(task.spec, 300, step) for step in (10, 20)]
    letters = points[-1].tasks[0]
    assert (letters.task, letters.metric, set(letters.by_seed)) == ("letters", "accuracy", {"1", "2"})
    assert letters.median is not None
    assert letters.median > letters.baselines["majority"]["accuracy"]
    assert points[-1].mean == pytest.approx(100 * letters.median)
    assert tracking.metric_history(run, "probe/mean") == [(point.step, point.mean) for point in points]
    assert tracking.metric_history(run, "probe/letters/accuracy")[-1] == (20, letters.figures["accuracy"])
    assert not list(tmp_path.glob("jobs/pt-1/probes/**/weights.safetensors")), "scores stay, weights do not"
    plot_probe(points, tmp_path / "probe.png")
    assert (tmp_path / "probe.png").stat().st_size > 5000


def test_another_attempt_reads_what_was_probed(task: TrainingTask, tmp_path: Path) -> None:
    """Nothing is finetuned again, nothing recorded twice, and the points are the same."""
    run, prepared = open_run(tmp_path), prepared_of(task, tmp_path)
    first = probed(task, prepared, tmp_path, run)
    results = sorted(tmp_path.glob("jobs/pt-1/probes/*/letters/*/result.json"))
    written = [path.stat().st_mtime_ns for path in results]
    assert len(written) == 4
    assert probed(task, prepared, tmp_path, run) == first
    assert [path.stat().st_mtime_ns for path in results] == written
    client = mlflow.MlflowClient(run.tracking_uri)
    assert len(client.get_metric_history(run.run_id, "probe/mean")) == 2


def test_a_probe_that_fails_does_not_end_the_training(task: TrainingTask, tmp_path: Path) -> None:
    broken = tuple(dataclasses.replace(one, uri=f"{tmp_path}/nowhere") for one in prepared_of(task, tmp_path))
    with Prober(task, broken, JobDirectory(str(tmp_path / "jobs" / "pt-1")), open_run(tmp_path)) as prober:
        train(task, Worker(), SilentTelemetry())
        assert prober.wait(lambda: None) == ()
    assert set(prober.failures) == {"probe at step 10", "probe at step 20"}
    assert "nowhere" in prober.failures["probe at step 20"]
    assert storage.exists(str(tmp_path / "jobs/pt-1/checkpoints/step_00000020/manifest.json"))


def test_a_step_between_recorded_ones_is_recorded_too(task: TrainingTask, tmp_path: Path) -> None:
    """An earlier attempt probed the last step and not the first."""
    run = open_run(tmp_path)
    earlier = tracking.Run(run)
    earlier.log_metrics(20, {"probe/mean": 12.5})
    assert earlier.close() == 0
    points = probed(task, prepared_of(task, tmp_path), tmp_path, run)
    assert tracking.metric_history(run, "probe/mean") == [(10, points[0].mean), (20, 12.5)]


def test_where_training_leaves_no_cpu_probes_wait_for_its_end(task: TrainingTask, tmp_path: Path) -> None:
    spec = task.spec.model_copy(update={"compute": task.spec.compute.model_copy(update={"num_workers": 2})})
    full = dataclasses.replace(task, spec=spec)
    prepared, results = prepared_of(full, tmp_path), "jobs/pt-1/probes/*/letters/*/result.json"
    with Prober(full, prepared, JobDirectory(str(tmp_path / "jobs" / "pt-1")), open_run(tmp_path)) as prober:
        train(full, Worker(), SilentTelemetry())
        assert not prober._has_room(0)
        assert list(tmp_path.glob(results)) == []
        assert [point.step for point in prober.wait(lambda: None)] == [10, 20]
    assert len(list(tmp_path.glob(results))) == 4


PROBE = (
    "kind: pretrain\npreset: tiny\nprobe: {tasks: {a: {type: glue, name: RTE, uri: x}}, interval_steps: %d, "
    "training: {max_sequence_length: 64}}"
)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            PROBE % 3000,
            "probe.interval_steps must be a multiple of training.checkpoint_interval_steps, got 3000 and 2000",
        ),
        (
            PROBE % 4000 + "\ntraining: {num_checkpoints_to_keep: 1}",
            "training.num_checkpoints_to_keep must be at least 2",
        ),
        (PROBE.replace("64", "200") % 4000, "at most model.max_position_embeddings, got 200 for a and 128"),
        (PROBE.replace("RTE", "SNLI") % 4000, "probe.tasks.a.name: Input should be 'CoLA'"),
    ],
)
def test_a_probe_that_cannot_be_is_refused(document: str, expected: str) -> None:
    with pytest.raises(SpecError) as error:
        load_spec(document)
    assert expected in str(error.value)
