"""The step as GPUs run it, as far as a CPU can: one graph, made once, and the corpus in the device's memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from gloo_workers import run_workers
from test_loader import build_corpus
from test_train_loop import Notebook
from training_task import make_task

from electra_core.kernels import use_native_kernels
from electra_core.objectives import OBJECTIVES
from pipelines.rows.staged import StagedRows
from pipelines.specs.curriculum import Stage
from pipelines.training.batches import Batches
from pipelines.training.resident import ResidentTokens
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker

CPU = torch.device("cpu")
NEEDS = {
    "two_stage": ["model.generator_size_ratio=1"],
    "mlm": ["masking.random_token_fraction=0.1"],
}
"""What an objective asks of the spec."""


@pytest.fixture(autouse=True)
def as_on_a_gpu() -> Iterator[None]:
    """Without the CPU's kernels, and nothing compiled before."""
    use_native_kernels(None)
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def counting_backend():
    """A list that fills with the graphs as they are made, and a backend that runs them as they are."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: object):
        graphs.append(graph)
        return graph.forward

    return graphs, backend


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_every_objective_is_one_graph_that_is_made_once(tmp_path: Path, objective: str):
    """`fullgraph` raises where the graph breaks; eager execution of it must then give the same losses."""
    overrides = [f"objective.name={objective}", *NEEDS.get(objective, [])]
    plain, compiled = Notebook(), Notebook()
    train(make_task(tmp_path, *overrides, name="plain"), Worker(), plain)
    graphs, backend = counting_backend()
    train(make_task(tmp_path, *overrides, name="compiled"), Worker(compile_backend=backend), compiled)
    assert compiled.losses == plain.losses
    # Of 20 steps: one for masking and one for the rest, in each stage of the objective.
    assert len(graphs) == (3 if objective == "two_stage" else 2)


def test_a_curriculum_makes_one_graph_for_each_shape(tmp_path: Path):
    overrides = [
        "masking.whole_word=true",
        "training.gradient_accumulation_steps=2",
        "training.curriculum=[{until_step: 6, sequence_length: 16, global_batch_size: 8}]",
        "training.num_train_steps=12",
    ]
    plain, compiled = Notebook(), Notebook()
    train(make_task(tmp_path, *overrides, name="plain"), Worker(), plain)
    graphs, backend = counting_backend()
    train(make_task(tmp_path, *overrides, name="compiled"), Worker(compile_backend=backend), compiled)
    assert compiled.losses == plain.losses
    assert len(graphs) == 4


@pytest.mark.skipif(not os.environ.get("ELECTRA_TEST_INDUCTOR"), reason="over a minute of C++; ELECTRA_TEST_INDUCTOR=1")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own
def test_inductor_computes_the_same(tmp_path: Path):
    """The networks alone: of the masking torch 2.13 makes AVX-512 code that may crash."""
    overrides = ["model.num_hidden_layers=1", "training.num_train_steps=8"]
    plain, compiled = Notebook(), Notebook()
    train(make_task(tmp_path, *overrides, name="plain"), Worker(), plain)
    train(make_task(tmp_path, *overrides, name="compiled"), CompilesNetworks(compile_backend="inductor"), compiled)
    for step, losses in plain.losses.items():
        assert compiled.losses[step] == pytest.approx(losses, rel=2e-4)


class CompilesNetworks(Worker):
    """Masking stays as it is."""

    def compiled(self, function):
        return super().compiled(function) if isinstance(function, torch.nn.Module) else function


class LikeGpus(Worker):
    """Gradients are summed by DistributedDataParallel."""

    def parallelise(self, networks: torch.nn.Module) -> torch.nn.Module:
        return self.distributed(networks)

    def sum_gradients(self, parameters: object) -> None:
        pass


def test_two_gpus_would_learn_what_two_cpus_do(tmp_path: Path):
    make_task(tmp_path)  # writes the corpus
    plain, wrapped, compiled = run_workers(2, partial(_losses_of_workers, tmp_path))[0]
    assert len(plain) == 20
    assert wrapped == pytest.approx(plain, rel=1e-6)
    assert compiled == pytest.approx(plain, rel=1e-6)


def _losses_of_workers(folder: Path, rank: int, num_workers: int) -> list[list[float]]:
    kinds = [Worker(rank, num_workers), LikeGpus(rank, num_workers)]
    kinds.append(LikeGpus(rank, num_workers, compile_backend="eager"))
    answers = []
    for kind, worker in enumerate(kinds):
        notebook = Notebook()
        overrides = ["compute.num_workers=2", "training.gradient_accumulation_steps=2"]
        train(make_task(folder, *overrides, name=f"{kind}"), worker, notebook)
        answers.append([sum(losses) for losses in notebook.losses.values()])
    return answers


def test_resident_rows_are_those_of_the_loader(tmp_path: Path):
    """Over three sources, shards of 50 tokens and the end of every ring; ids past 16 bits."""
    corpus = build_corpus(str(tmp_path), 1000, 90_000, 333)
    rows = StagedRows(corpus, (1.0, 0.1, 3.0), (Stage(0, 40, 10, 8), Stage(40, 80, 26, 4)), seed=1)
    resident = ResidentTokens(rows.streams, corpus.special, CPU)
    for step in range(80):
        positions = np.arange(8 if step < 40 else 4)
        expected = rows.rows(step, positions)
        assert np.array_equal(resident.rows(*rows.locate(step, positions)).numpy(), expected)


def test_ids_of_16_bits_stay_unsigned(tmp_path: Path):
    task = make_task(tmp_path)
    shard = Path(task.corpus.uri) / "train-0.bin"
    tokens = np.fromfile(shard, "<u2")
    tokens[::3] = 60_000
    tokens.tofile(shard)
    rows = StagedRows(task.corpus, (1.0,), task.spec.training.stages, seed=1)
    resident = ResidentTokens(rows.streams, task.corpus.special, CPU).rows(*rows.locate(0, np.arange(16)))
    assert int(resident.max()) == 60_000
    assert np.array_equal(resident.numpy(), rows.rows(0, np.arange(16)))


def test_batches_are_the_same_wherever_the_corpus_lies(tmp_path: Path):
    task = make_task(tmp_path, "masking.whole_word=true")
    mapped, resident = (Batches(task, Worker(), is_resident=choice) for choice in (False, True))
    for step in (0, 7, 19):
        left, right = mapped.at(step)[0], resident.at(step)[0]
        for field in fields(left):
            one, other = getattr(left, field.name), getattr(right, field.name)
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
