"""Weights from elsewhere: the first losses are theirs, what does not fit is refused, and resuming stays exact."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_task import VOCAB_SIZE, make_task
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from electra_core.batches import SpecialTokens
from electra_core.conversion.to_transformers import transformers_config
from electra_core.objectives.corruption import corrupt
from electra_core.optimizer import make_optimizer
from pipelines.errors import CheckpointError, StorageError
from pipelines.job import JobDirectory
from pipelines.training.batches import Batches
from pipelines.training.checkpoint import list_checkpoints, read_state, state_of, write_checkpoint
from pipelines.training.task import TrainingTask, build_networks
from pipelines.training.telemetry import SilentTelemetry
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker
from pipelines.weights.initial import prepare_initial_weights
from pipelines.weights.kept import start_from

pytestmark = pytest.mark.usefixtures("one_thread")

GOLDEN = Path(__file__).parents[1] / "golden" / "tensorflow" / "electra.ckpt"
GOLDEN_SIZES = (
    *("model.hidden_size=16", "model.embedding_size=12", "model.num_attention_heads=1", "model.intermediate_size=32"),
    *("model.num_hidden_layers=2", "model.max_position_embeddings=16", "training.sequence_length=16"),
)
NO_DROPOUT = ("model.hidden_dropout_prob=0", "model.attention_probs_dropout_prob=0")
CLASSES = {"discriminator": ElectraForPreTraining, "generator": ElectraForMaskedLM}


class Notebook(SilentTelemetry):
    """Remembers losses by step, and fails at one."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.losses: dict[int, tuple[float, float]] = {}
        self._fail_at = fail_at

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        self.losses[step] = (figures["generator_loss"], figures["discriminator_loss"])
        if step == self._fail_at:
            raise KeyboardInterrupt


def write_vocabulary(path: Path, size: int = VOCAB_SIZE, word: str = "word") -> Path:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"{word}{index}" for index in range(5, size))]
    path.write_text("".join(f"{one}\n" for one in words))
    return path


def task_from(
    folder: Path, section: Mapping[str, Any], *overrides: str, name: str = "job", vocab: int = VOCAB_SIZE
) -> TrainingTask:
    """A task whose initial weights are prepared as a job would."""
    tokenizer = {"type": "pretrained", "uri": str(write_vocabulary(folder / f"vocab-{vocab}.txt", vocab))}
    given = (f"tokenizer={json.dumps(tokenizer)}", f"initialization={json.dumps(section)}")
    task = make_task(folder, *given, *overrides, name=name)
    return replace(task, initial_weights=prepare_initial_weights(task.spec, str(folder / name)))


def write_transformers(folder: Path, task: TrainingTask, network: str, pickled: bool = False) -> str:
    """A model of Transformers' own, with random weights, in the sizes of the task."""
    encoder = getattr(seeded(task), network).config
    config = transformers_config(encoder, SpecialTokens(*task.corpus.special), CLASSES[network].__name__)
    with torch.random.fork_rng():
        torch.manual_seed(len(network))
        model = CLASSES[network](ElectraConfig.from_dict(config))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder / network)
    if pickled:
        (folder / network / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / network / "pytorch_model.bin")
    return str(folder / network)


def seeded(task: TrainingTask):
    return build_networks(task.spec, task.corpus)


def networks_of(task: TrainingTask):
    networks = seeded(task)
    start_from(networks, task.initial_weights)
    return networks.eval()


@torch.no_grad()
def losses_of_transformers(task: TrainingTask, folders: Mapping[str, str]) -> tuple[float, float]:
    """Both losses of the first batch, by Transformers' classes."""
    batch, draws = Batches(task, Worker()).at(0)
    net = networks_of(task)
    corruption = corrupt(net, batch, draws, task.spec.objective)
    models = {network: cls.from_pretrained(folders[network]).eval() for network, cls in CLASSES.items()}
    chosen = torch.zeros_like(batch.original_ids, dtype=torch.float32)
    chosen.scatter_(1, batch.masked_positions, batch.masked_weights)
    labels = batch.original_ids.masked_fill(chosen == 0, -100)
    types = {"token_type_ids": batch.token_type_ids}
    generator = models["generator"](batch.generator_input_ids, labels=labels, **types).loss
    discriminator = models["discriminator"](
        corruption.corrupted_ids, labels=corruption.is_replaced.long(), **types
    ).loss
    return float(generator), float(discriminator)


@pytest.mark.parametrize("pickled", [False, True])
def test_the_first_step_has_the_losses_of_transformers(tmp_path: Path, pickled: bool):
    plain = make_task(tmp_path, *NO_DROPOUT)
    folders = {network: write_transformers(tmp_path, plain, network, pickled) for network in CLASSES}
    discriminator = CLASSES["discriminator"].from_pretrained(folders["discriminator"])
    generator = CLASSES["generator"].from_pretrained(folders["generator"])
    generator.electra.embeddings.load_state_dict(discriminator.electra.embeddings.state_dict())
    generator.save_pretrained(folders["generator"])  # shared embeddings, as in everything ELECTRA pretrained
    section = {"type": "transformers", **{f"{network}_uri": uri for network, uri in folders.items()}}
    task = task_from(tmp_path, section, *NO_DROPOUT)
    notebook = Notebook(fail_at=1)
    with pytest.raises(KeyboardInterrupt):
        train(task, Worker(), notebook)
    assert notebook.losses[1] == pytest.approx(losses_of_transformers(task, folders), abs=1e-5)
    assert notebook.losses[1] != pytest.approx(losses_of_seed(tmp_path), abs=1e-2)


def losses_of_seed(folder: Path) -> tuple[float, float]:
    notebook = Notebook(fail_at=1)
    with pytest.raises(KeyboardInterrupt):
        train(make_task(folder, *NO_DROPOUT, name="seed"), Worker(), notebook)
    return notebook.losses[1]


def test_a_resumed_run_is_exact_though_the_source_is_gone(tmp_path: Path):
    uri = write_transformers(tmp_path, make_task(tmp_path), "discriminator")
    section = {"type": "transformers", "discriminator_uri": uri}
    whole, broken = (task_from(tmp_path, section, name=name) for name in ("whole", "broken"))
    assert whole.identity == broken.identity
    undisturbed = Notebook()
    train(whole, Worker(), undisturbed)
    with pytest.raises(KeyboardInterrupt):
        train(broken, Worker(), Notebook(fail_at=13))
    shutil.rmtree(uri)
    again = replace(broken, initial_weights=prepare_initial_weights(broken.spec, str(tmp_path / "broken")))
    assert again == broken
    resumed = Notebook()
    train(again, Worker(), resumed)
    assert resumed.losses == {step: undisturbed.losses[step] for step in range(11, 21)}


def test_a_job_goes_on_from_anothers_checkpoint_at_step_0(tmp_path: Path):
    first = make_task(tmp_path, name="first")
    JobDirectory(str(tmp_path / "first")).write_spec(first.spec)
    train(first, Worker(), Notebook())
    final = list_checkpoints(first.checkpoints_uri)[-1]
    weights = read_state(final)["networks"]
    for name, uri in {"a": str(tmp_path / "first"), "b": first.checkpoints_uri, "c": final.uri}.items():
        task = task_from(tmp_path, {"type": "checkpoint", "uri": uri}, name=name)
        state = networks_of(task).state_dict()
        assert all(torch.equal(state[key], weights[key]) for key in weights)
    notebook = Notebook(fail_at=1)
    with pytest.raises(KeyboardInterrupt):
        train(task, Worker(), notebook)
    assert min(notebook.losses) == 1


def test_one_network_of_a_checkpoint_may_be_taken(tmp_path: Path):
    first = make_task(tmp_path, "training.seed=7", name="first")
    train(first, Worker(), Notebook())
    weights = read_state(list_checkpoints(first.checkpoints_uri)[-1])["networks"]
    section = {"type": "checkpoint", "uri": first.checkpoints_uri, "load": "discriminator"}
    task = task_from(tmp_path, section)
    state, start = networks_of(task).state_dict(), seeded(task).state_dict()
    for name in state:
        assert torch.equal(state[name], (start if name.startswith("generator") else weights)[name])


@pytest.mark.parametrize(
    ("theirs", "ours", "not_taken"),
    [
        ("mlm", "mlm", ()),
        ("electra", "mlm", ("language_head",)),
        ("mlm", "electra", ("generator", "discriminator_head")),
        ("electra", "electric", ("cloze_",)),
    ],
)
def test_an_objective_goes_on_from_another(tmp_path: Path, theirs: str, ours: str, not_taken: tuple[str, ...]):
    first = make_task(tmp_path, f"objective.name={theirs}", "training.seed=7", name="first")
    JobDirectory(str(tmp_path / "first")).write_spec(first.spec)
    networks = seeded(first)
    saved = state_of(networks, make_optimizer(networks, first.spec.optimizer))
    write_checkpoint(first.checkpoints_uri, 1, saved, "id", keep=1)
    task = task_from(tmp_path, {"type": "checkpoint", "uri": str(tmp_path / "first")}, f"objective.name={ours}")
    state, start, weights = networks_of(task).state_dict(), seeded(task).state_dict(), networks.state_dict()
    for name in state:
        assert torch.equal(state[name], (start if name.startswith(not_taken) else weights)[name]), name


def test_a_network_the_checkpoint_lacks_is_refused(tmp_path: Path):
    first = make_task(tmp_path, "objective.name=mlm", name="first")
    JobDirectory(str(tmp_path / "first")).write_spec(first.spec)
    networks = seeded(first)
    saved = state_of(networks, make_optimizer(networks, first.spec.optimizer))
    write_checkpoint(first.checkpoints_uri, 1, saved, "id", keep=1)
    section = {"type": "checkpoint", "uri": str(tmp_path / "first"), "load": "generator"}
    with pytest.raises(CheckpointError, match="must hold a generator, got discriminator"):
        task_from(tmp_path, section)


def test_tensorflows_networks_are_taken_with_what_is_missing_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    section = {"type": "tensorflow", "uri": str(GOLDEN)}
    both = networks_of(replace_vocabulary(task_from(tmp_path, section, *GOLDEN_SIZES, name="both", vocab=70)))
    assert both.vocab_size == 70
    with caplog.at_level(logging.INFO):
        task = task_from(tmp_path, section | {"load": "generator"}, *GOLDEN_SIZES, vocab=70)
    told = {record.message: vars(record) for record in caplog.records}
    assert set(told["initial_weights_from_seed"]["parts"]) == {"discriminator", "discriminator_head"}
    one = networks_of(replace_vocabulary(task)).state_dict()
    shared = [name for name in one if not name.startswith("discriminator")]
    assert all(torch.equal(one[name], both.state_dict()[name]) for name in shared)
    assert not torch.equal(one["discriminator_head.dense.weight"], both.discriminator_head.dense.weight)


def replace_vocabulary(task: TrainingTask) -> TrainingTask:
    return replace(task, corpus=replace(task.corpus, vocab_size=70))


def test_other_weights_are_another_job(tmp_path: Path):
    section = {"type": "tensorflow", "uri": str(GOLDEN)}
    both = task_from(tmp_path, section, *GOLDEN_SIZES, name="both", vocab=70)
    one = task_from(tmp_path, section | {"load": "generator"}, *GOLDEN_SIZES, name="one", vocab=70)
    assert len({both.identity, one.identity, replace(both, initial_weights=None).identity}) == 3


@pytest.mark.parametrize(
    ("vocab", "overrides", "message"),
    [
        (71, (), r"tokenizer.uri must name the vocabulary of .*electra.ckpt, which has 70 entries, got 71"),
        (70, ("model.hidden_size=32",), "give the discriminator the sizes of .*: hidden_size 16, got 32"),
        (70, ("model.num_hidden_layers=3",), "num_hidden_layers 2, got 3"),
        (70, ("model.max_position_embeddings=32",), "max_position_embeddings at most 16, got 32"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(tmp_path: Path, vocab: int, overrides, message: str):
    with pytest.raises(CheckpointError, match=message):
        task_from(tmp_path, {"type": "tensorflow", "uri": str(GOLDEN)}, *GOLDEN_SIZES, *overrides, vocab=vocab)


def test_transformers_heads_and_activation_are_compared(tmp_path: Path):
    uri = write_transformers(tmp_path, make_task(tmp_path), "discriminator")
    section = {"type": "transformers", "discriminator_uri": uri}
    with pytest.raises(CheckpointError, match="num_attention_heads 2, got 4"):
        task_from(tmp_path, section, "model.num_attention_heads=4")
    config = json.loads((Path(uri) / "config.json").read_text())
    (Path(uri) / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    with pytest.raises(CheckpointError, match="hidden_act must be 'gelu', got 'relu'"):
        task_from(tmp_path, section)


def test_another_vocabulary_of_the_same_size_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    uri = write_transformers(tmp_path, make_task(tmp_path), "discriminator")
    write_vocabulary(Path(uri) / "vocab.txt", word="other")
    task_from(tmp_path, {"type": "transformers", "discriminator_uri": uri})
    told = {record.message: vars(record) for record in caplog.records}
    assert told["weights_of_another_vocabulary"]["num_differing"] == VOCAB_SIZE - 5


class Harmful:
    def __reduce__(self):
        return print, ("run",)


def test_a_pickle_that_is_more_than_tensors_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    uri = write_transformers(tmp_path, make_task(tmp_path), "discriminator", pickled=True)
    (Path(uri) / "pytorch_model.bin").write_bytes(pickle.dumps(Harmful(), protocol=2))
    with pytest.raises(CheckpointError, match="must be a state dict and nothing else"):
        task_from(tmp_path, {"type": "transformers", "discriminator_uri": uri})
    assert "run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("section", "error"),
    [
        ({"type": "checkpoint", "uri": "nothing"}, CheckpointError),
        ({"type": "tensorflow", "uri": "nothing"}, StorageError),
        ({"type": "transformers", "generator_uri": "nothing"}, StorageError),
    ],
)
def test_an_absent_source_is_named(tmp_path: Path, section, error):
    section = {key: str(tmp_path / value) if key.endswith("uri") else value for key, value in section.items()}
    with pytest.raises(error, match="nothing"):
        task_from(tmp_path, section)


def test_a_changed_copy_is_refused(tmp_path: Path):
    task = task_from(tmp_path, {"type": "tensorflow", "uri": str(GOLDEN)}, *GOLDEN_SIZES, vocab=70)
    path = Path(task.initial_weights.uri) / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match="must have sha256"):
        networks_of(replace_vocabulary(task))
