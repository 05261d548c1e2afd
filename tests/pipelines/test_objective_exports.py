"""The evaluate stage after each kind of objective: figures, cards, plots, and exports that Transformers loads."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers
from test_objectives import OBJECTIVES, run, task_of
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from training_task import VOCAB_SIZE

from pipelines.evaluation import evaluate_and_export
from pipelines.export import ARCHITECTURES
from pipelines.record.report import plain_example, plot_losses
from pipelines.tokenizer import SPECIAL_TOKENS

EXPECTED = {
    "electra": {"discriminator", "generator"},
    "uniform": {"discriminator"},
    "all_tokens_mlm": {"discriminator", "generator"},
    "mlm": {"encoder"},
    "electric": {"discriminator"},
    "two_stage": {"discriminator", "generator"},
    "adversarial": {"discriminator", "generator"},
}


def write_tokenizer(folder: Path) -> None:
    words = [*SPECIAL_TOKENS, *(f"token{index}" for index in range(len(SPECIAL_TOKENS), VOCAB_SIZE))]
    vocabulary = {word: index for index, word in enumerate(words)}
    Tokenizer(WordLevel(vocabulary, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    (folder / "tokenizer_config.json").write_text("{}")


@pytest.mark.parametrize("objective", EXPECTED)
def test_an_objective_ends_in_figures_cards_and_exports(tmp_path: Path, objective: str):
    task = task_of(tmp_path, objective, "job")
    write_tokenizer(tmp_path / "corpus")
    diary = run(task)
    evaluated = evaluate_and_export(task, str(tmp_path / "job"), "job-1")
    assert set(evaluated.exports) == EXPECTED[objective]
    assert set(diary.evaluations[7]) == set(evaluated.figures)
    assert bool(plain_example(evaluated.example)) == ("discriminator_auc" in evaluated.figures)
    for network, uri in evaluated.exports.items():
        model_class = getattr(transformers, ARCHITECTURES[network])
        _, report = model_class.from_pretrained(uri, output_loading_info=True)
        assert not report["missing_keys"]
        card = (Path(uri) / "README.md").read_text()
        assert task.spec.name in card
        assert "| figure | value | without learning |\n|---|---|---|\n| " in card
    curves = {name: [(7, value)] for name, value in evaluated.figures.items()}
    plot_losses({}, curves, tmp_path / "losses.png")
    assert (tmp_path / "losses.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_names_objectives_of_the_loop():
    assert set(EXPECTED) <= set(OBJECTIVES)
