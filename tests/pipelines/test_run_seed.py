"""Finetuning runs: they learn, go on where they stopped, and are never run twice."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch
import transformers
from finetuning_world import TASKS, base_model, seed_task, toy_task

from pipelines import storage
from pipelines.errors import CheckpointError, DataError, NonFiniteLossError
from pipelines.finetune import _finetune, _params_of
from pipelines.finetuning.export import architecture, export_finetuned
from pipelines.finetuning.export_task import ExportTask
from pipelines.finetuning.keep_base_model import keep_base_model
from pipelines.finetuning.run_seed import find_finished, run_seed
from pipelines.finetuning.seed_task import SeedResult, SeedTask
from pipelines.finetuning.submission import write_submissions
from pipelines.finetuning.summarise import summarise
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.predicting.local import predict_with_folder
from pipelines.specs.finetune import BaselineSpec, FinetuneSpec, ModelFiles
from pipelines.specs.prediction import PredictInput
from pipelines.specs.task import MultipleChoiceTask
from pipelines.tasks.prepare import TaskPreparation, prepare_task
from pipelines.tasks.scores import main_metric
from pipelines.training.checkpoint import Checkpoint, list_checkpoints


def weights_of(task: SeedTask) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(f"{task.uri}/weights.safetensors")


@pytest.mark.parametrize("kind", TASKS)
def test_each_kind_of_task_is_learned(tmp_path: Path, kind: str) -> None:
    """What stands in the words is found out in seconds, on text that was not trained on, the test split included."""
    task = seed_task(tmp_path, kind)
    result = run_seed(task)
    metric = main_metric(task.prepared.task)
    enough = 90.0 if kind == "question_answering" else 0.9
    assert result.scores["validation"][metric] >= enough
    assert result.scores["test"][metric] >= enough
    assert result.losses[-1][1] < result.losses[0][1]
    lines = Path(task.uri, "predictions-test.jsonl").read_text().splitlines()
    assert len(lines) == 32


@pytest.mark.parametrize("kind", TASKS)
def test_an_export_answers_as_the_run_did(tmp_path: Path, kind: str) -> None:
    """Loaded by Transformers with nothing missing or left over, from its folder, tokenizer included."""
    task = seed_task(tmp_path, kind, num_epochs=1)
    result = run_seed(task)
    scores = summarise(task.prepared, [result]).scores
    uri = export_finetuned(ExportTask(task, scores, result, "ft-1", "toy", "CC0-1.0", str(tmp_path / "export")))
    model_class = getattr(transformers, architecture(task))
    model, loading = model_class.from_pretrained(uri, output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(uri)
    card = Path(uri, "README.md").read_text()
    assert "license: CC0-1.0" in card
    assert "ft-1" in card
    if kind not in ("classification", "regression"):
        return
    predictions = [json.loads(line) for line in Path(task.uri, "predictions-test.jsonl").read_text().splitlines()]
    rows = [json.loads(line) for line in Path(tmp_path, f"{kind}-test.jsonl").read_text().splitlines()]
    for row, predicted in zip(rows, predictions, strict=True):
        with torch.no_grad():
            logits = model.eval()(**tokenizer(row["text"], return_tensors="pt")).logits[0]
        if kind == "regression":
            assert logits.item() == pytest.approx(predicted["prediction"], abs=1e-4)
        else:
            assert model.config.id2label[int(logits.argmax())] == predicted["prediction"]
            assert logits.softmax(0).max().item() == pytest.approx(predicted["probability"], abs=1e-4)


def test_an_export_cuts_what_is_longer_than_it_was_trained_on(tmp_path: Path) -> None:
    """At the task's length, though the network has more positions; longer texts do not end in an error."""
    task = seed_task(tmp_path, num_epochs=None, num_train_steps=1, max_sequence_length=16)
    assert task.base.encoder.max_position_embeddings == 64
    result = run_seed(task)
    scores = summarise(task.prepared, [result]).scores
    uri = export_finetuned(ExportTask(task, scores, result, "ft-1", "toy", None, str(tmp_path / "export")))
    assert transformers.AutoTokenizer.from_pretrained(uri).model_max_length == 16
    classify = transformers.pipeline("text-classification", model=uri, tokenizer=uri)
    told = classify("the film is good . " * 40, truncation=True)[0]
    assert told["score"] == pytest.approx(
        classify("the film is good . " * 2 + "the film is good")[0]["score"], abs=1e-6
    )
    shorter = predict_with_folder(Path(uri), [PredictInput(text="the film is good . " * 40)]).predictions[0]
    assert (shorter.was_cut, shorter.probabilities[told["label"]]) == (True, pytest.approx(told["score"], abs=1e-5))


def kill_at(task: SeedTask, step: int) -> None:
    """Run in a process of its own, with a checkpoint after every step, and kill -9 it when it has come so far."""
    process = multiprocessing.get_context("spawn").Process(target=run_seed, args=(task, 0.0))
    process.start()
    deadline = time.monotonic() + 120
    while not any(one.step >= step for one in own_checkpoints(task)):
        assert process.is_alive(), "it ended before it was killed"
        assert time.monotonic() < deadline, f"waited 120 s for a checkpoint of {task.name} at step {step}"
        time.sleep(0.02)
    process.kill()
    process.join(timeout=30)


def own_checkpoints(task: SeedTask) -> list[Checkpoint]:
    """Of this very run; one that is deleted meanwhile is none."""
    try:
        found = list_checkpoints(f"{task.uri}/checkpoints")
        identities = [storage.read_json(f"{one.uri}/manifest.json")["identity"] for one in found]
    except storage.StorageError:
        return []
    return [one for one, identity in zip(found, identities, strict=True) if identity == task.identity]


def test_a_killed_run_goes_on_to_the_same_weights(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """kill -9 in the middle: weights and figures equal the undisturbed run's, bit for bit."""
    caplog.set_level("INFO")
    task = seed_task(tmp_path, num_epochs=24, evaluations_per_epoch=1, early_stopping_patience=100)
    whole = run_seed(task)
    again = dataclasses.replace(task, uri=f"{tmp_path}/killed")
    kill_at(again, 40)
    resumed = run_seed(again)
    assert [record.step >= 40 for record in caplog.records if record.message == "run_resumed"] == [True]
    for name, tensor in weights_of(task).items():
        assert torch.equal(tensor, weights_of(again)[name]), name
    assert resumed.losses == whole.losses
    assert resumed.evaluations == whole.evaluations
    assert resumed.scores == whole.scores


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    task = seed_task(tmp_path, num_epochs=1)
    first = run_seed(task)
    written = Path(task.uri, "weights.safetensors").stat().st_mtime_ns
    assert run_seed(task) == first
    assert Path(task.uri, "weights.safetensors").stat().st_mtime_ns == written
    other = dataclasses.replace(task, training=task.training.model_copy(update={"learning_rate": 1e-3}))
    assert SeedResult.find(task.uri, other.identity) is None


def test_checkpoints_left_by_a_kill_after_the_last_word_are_deleted(tmp_path: Path) -> None:
    """Whoever finds a finished run starts it no more: it is where it is found that they go."""
    task = seed_task(tmp_path, num_train_steps=1, num_epochs=None)
    assert find_finished(task) is None
    result = run_seed(task)
    state = Path(task.uri, "checkpoints", "step_00000001", "state.pt")
    state.parent.mkdir(parents=True)
    state.write_bytes(b"much")
    spec = FinetuneSpec(kind="finetune", model=ModelFiles(uri=task.base.origin), task=task.prepared.task)
    reporter = ProgressReporter(JobDirectory(str(tmp_path / "job")))
    assert _finetune([task], spec, reporter) == {0: result}
    assert not state.parent.parent.exists()


def test_seeds_differ_and_one_seed_repeats(tmp_path: Path) -> None:
    runs = [seed_task(tmp_path, seed=seed, run=run, num_epochs=1) for seed, run in ((1, "a"), (1, "b"), (2, "a"))]
    for run in runs:
        run_seed(run)
    one, same, other = (weights_of(run)["head.dense.weight"] for run in runs)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_without_pretraining_the_seed_gives_all_weights(tmp_path: Path) -> None:
    source = ModelFiles(uri=base_model(tmp_path).origin, without_pretraining=True)
    base = keep_base_model(source, str(tmp_path / "random"), "")
    task = seed_task(tmp_path, num_epochs=1, learning_rate=1e-9)
    trained, random = (
        dataclasses.replace(task, uri=f"{tmp_path}/p"),
        dataclasses.replace(task, base=base, uri=f"{tmp_path}/r"),
    )
    assert trained.identity != random.identity
    run_seed(trained)
    run_seed(random)
    assert not torch.allclose(weights_of(trained)["embeddings.word"], weights_of(random)["embeddings.word"], atol=1e-3)


def test_stopping_early_keeps_the_best_weights(tmp_path: Path) -> None:
    """Nothing is learned at a rate of nearly nothing: the run ends after its patience, and says when."""
    task = seed_task(tmp_path, learning_rate=1e-12, num_epochs=50, evaluations_per_epoch=1, early_stopping_patience=2)
    result = run_seed(task)
    assert result.num_steps == 3 * task.prepared.steps_per_epoch(16)
    assert [step for step, _ in result.evaluations] == [16, 32, 48]
    # What is on record are the rules it was trained by: those of all 50 epochs.
    params = _params_of(task, result)
    assert (params["num_train_steps"], params["num_steps_taken"]) == (800, 48)
    assert params["optimizer"]["warmup_steps"] == 80


@pytest.mark.parametrize("length", [{"num_epochs": 3}, {"num_epochs": None, "num_train_steps": 48}])
def test_stopping_early_looks_before_the_end(tmp_path: Path, length: dict[str, int | None]) -> None:
    """However seldom it is to look: without a single look there is nothing to choose from."""
    task = seed_task(tmp_path, **length, evaluations_per_epoch=0.1, early_stopping_patience=1)
    assert [step for step, _ in run_seed(task).evaluations] == [24]
    unhurried = dataclasses.replace(
        task, training=task.training.model_copy(update={"early_stopping_patience": None}), uri=f"{tmp_path}/unhurried"
    )
    assert unhurried.evaluation_interval(16) == 160


def test_a_run_of_another_order_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a version with other batches began is not gone on with."""
    task = seed_task(tmp_path)
    before = task.identity
    monkeypatch.setattr("pipelines.finetuning.seed_task.RUN_VERSION", 1)
    assert task.identity != before


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    task = seed_task(tmp_path)
    folder = Path(task.base.origin)
    state = safetensors.torch.load_file(folder / "model.safetensors")
    state["electra.encoder.layer.0.intermediate.dense.bias"].fill_(3e38)  # finite, and nothing after it is
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    base = keep_base_model(ModelFiles(uri=str(folder)), str(tmp_path / "huge"), "")
    task = dataclasses.replace(task, base=base, uri=f"{tmp_path}/huge-run")
    with pytest.raises(NonFiniteLossError, match="classification seed 1: the loss must be finite"):
        run_seed(task)


def test_balanced_weights_are_inverse_to_frequency(tmp_path: Path) -> None:
    task = seed_task(tmp_path)
    spec = task.prepared.task.model_copy(update={"class_weights": "balanced"})
    prepared = dataclasses.replace(task.prepared, task=spec, labels=("bad", "good"), label_counts=(30, 10))
    assert dataclasses.replace(task, prepared=prepared).class_weights() == pytest.approx((40 / 60, 40 / 20))
    named = dataclasses.replace(prepared, task=spec.model_copy(update={"class_weights": {"good": 4.0}}))
    assert dataclasses.replace(task, prepared=named).class_weights() == (1.0, 4.0)


def test_two_jobs_on_one_task_prepare_it_once(tmp_path: Path) -> None:
    base, task = base_model(tmp_path), toy_task("classification", tmp_path)
    storage = str(tmp_path / "storage")
    first = prepare_task(TaskPreparation("a", task, base.uri, 64, storage, BaselineSpec()))
    written = Path(first.uri, "train.npz").stat().st_mtime_ns
    second = prepare_task(TaskPreparation("b", task, base.uri, 64, storage, BaselineSpec()))
    assert (second.digest, second.name) == (first.digest, "b")
    assert Path(first.uri, "train.npz").stat().st_mtime_ns == written
    other = prepare_task(TaskPreparation("a", task, base.uri, 32, storage, BaselineSpec()))
    assert other.digest != first.digest


def test_baselines_stand_beside_the_scores(tmp_path: Path) -> None:
    """The label stands in the words, so TF-IDF finds it too, and the commonest label does not."""
    baselines = seed_task(tmp_path).prepared.baselines
    assert baselines["tfidf"]["accuracy"] >= 0.95
    assert baselines["majority"]["accuracy"] < 0.7


@pytest.mark.parametrize("break_it", ["layer", "vocabulary"])
def test_a_model_that_is_no_whole_encoder_is_refused(tmp_path: Path, break_it: str) -> None:
    folder = Path(base_model(tmp_path).origin)
    state = safetensors.torch.load_file(folder / "model.safetensors")
    if break_it == "layer":
        del state["electra.encoder.layer.1.output.dense.weight"]
    else:
        state["electra.embeddings.word_embeddings.weight"] = state["electra.embeddings.word_embeddings.weight"][
            :20
        ].clone()
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    message = "must hold every weight of its encoder" if break_it == "layer" else "must have at most 20 entries, got"
    with pytest.raises(CheckpointError, match=message):
        keep_base_model(ModelFiles(uri=str(folder)), str(tmp_path / "other"), "")


def test_choices_must_be_as_many_in_every_split(tmp_path: Path) -> None:
    rows = {"train": ["a", "b"], "dev": ["a", "b", "c"]}
    for name, choices in rows.items():
        row = {"text": "film", "choices": choices, "label": 0}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    data = {"train": str(tmp_path / "train.jsonl"), "validation": str(tmp_path / "dev.jsonl")}
    task = MultipleChoiceTask.model_validate({"data": data})
    wanted = TaskPreparation("a", task, base_model(tmp_path).uri, 64, str(tmp_path / "storage"), BaselineSpec())
    with pytest.raises(DataError, match="of validation must have as many choices as those of train, got 3 and 2"):
        prepare_task(wanted)


def test_separators_of_unicode_stand_in_answers(tmp_path: Path) -> None:
    """Predictions are read back line by line: U+2028 in an answer ends none."""
    task = seed_task(tmp_path, "question_answering", num_epochs=1)
    run_seed(task)
    path = Path(task.uri, "predictions-test.jsonl")
    path.write_text(path.read_text().replace("oslo", "os\u2028lo"))
    write_submissions(task, tmp_path / "submissions")
    answers = json.loads((tmp_path / "submissions" / "question_answering-test-predictions.json").read_text())
    assert len(answers) == 32
    spans = json.loads((tmp_path / "submissions" / "question_answering-test-spans.json").read_text())
    assert spans.keys() == answers.keys()
    assert all(answers[key] in ("", spans[key]) for key in answers)


def test_a_checkpoint_of_another_run_does_not_outlive_ours(tmp_path: Path) -> None:
    """A foreign one at a later step would have every new one deleted: ours are there after a kill."""
    task = seed_task(tmp_path, num_epochs=24)
    other = dataclasses.replace(task, training=task.training.model_copy(update={"weight_decay": 0.02}))
    kill_at(other, 60)
    kill_at(task, 10)
    assert own_checkpoints(task)
    assert not own_checkpoints(other)
