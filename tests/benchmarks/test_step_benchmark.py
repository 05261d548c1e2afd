"""The step benchmark: its figures, and that it has none where contenders compute different things."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FIGURES = {
    f"{precision}_{name}"
    for precision in ("bf16", "fp32")
    for name in ("vs_transformers_naive", "vs_transformers_best", "matmul_share")
}


@pytest.fixture
def contenders(monkeypatch):
    """Transformers as users write it and ours, with the same weights."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from contenders.ours import Ours
    from contenders.sizes import Size, size_of
    from contenders.theirs import Naive, Settings

    tiny = size_of("tiny", 2, 16)
    size = Size("tiny", tiny.model, tiny.masking, rows=2, length=16, vocab_size=200)
    cpu = torch.device("cpu")
    return {"theirs": Naive(size, Settings(), cpu), "ours": Ours(size, "fp32", cpu)}


def answers(contenders):
    return {name: ("fp32", contender.answer()) for name, contender in contenders.items()}


def test_contenders_of_the_same_weights_agree(contenders):
    from contenders.agreement import check_agreement

    check_agreement(answers(contenders), "theirs")


@pytest.mark.parametrize("network", ["generator", "discriminator"])
def test_a_disturbed_weight_is_noticed(contenders, network):
    from contenders.agreement import DisagreementError, check_agreement

    with torch.no_grad():
        getattr(contenders["ours"].networks, network).layers[0].output.weight[0] += 1.0
    with pytest.raises(DisagreementError, match="of ours is"):
        check_agreement(answers(contenders), "theirs")


def test_a_quick_run_writes_every_figure(tmp_path):
    path = tmp_path / "figures.json"
    size = ["--model", "tiny", "--rows", "2", "--length", "16", "--repetitions", "1"]
    command = [sys.executable, str(BENCHMARKS / "step.py"), "--quick", "--one-process", *size, "--json", str(path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(BENCHMARKS.parent)}
    subprocess.run(command, env=environment, check=True, timeout=300, capture_output=True)
    document = json.loads(path.read_text())
    assert document["figures"].keys() == FIGURES
    assert all(value > 0 for value in document["figures"].values())
    assert document["machine"]
