"""Models in MLflow: its `pyfunc`, which is what `mlflow models predict` runs, answers as Transformers does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
import safetensors.torch
import torch
from prediction_models import MAX_LENGTH, forward, model_folder

from pipelines.finetuning.serving import Serving, serving_of
from pipelines.job_run import serving_requirements
from pipelines.record import tracking
from pipelines.specs.labelled import LabelledData
from pipelines.specs.task import ClassificationTask, TokenClassificationTask

pytestmark = pytest.mark.filterwarnings("default")  # MLflow warns of its own modules while it imports them

DATA = LabelledData(train=("train.jsonl",))
LONG = "the sea sees bert . " * 20
TAGS = {"id2label": {0: "O", 1: "B-NAME", 2: "I-NAME", 3: "B-PLACE", 4: "I-PLACE"}}

Serve = Callable[[Path, Serving], Any]


@pytest.fixture
def served(tmp_path: Path) -> Serve:
    """Register a folder as a job does, with the length that exports write; give what MLflow loads."""
    store = f"sqlite:///{tmp_path}/mlflow.db"
    run = tracking.open_run(store, "served", "job-1", "name", {}, str(tmp_path / "artifacts"))

    def serve(folder: Path, serving: Serving) -> Any:
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": MAX_LENGTH}))
        architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
        version = tracking.register_model(
            run,
            folder,
            "model",
            "served",
            "newest",
            architecture,
            serving.pipeline,
            serving_requirements(),
            {},
            "",
            serving.input_example,
            serving.model_config,
        )
        return mlflow.pyfunc.load_model(f"models:/served/{version}")

    return serve


def test_both_texts_of_a_pair_are_read(served: Serve, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m", "ElectraForSequenceClassification", initializer_range=0.2)
    model = served(folder, serving_of(ClassificationTask(data=DATA, text_pair="text_pair")))
    assert model.metadata.get_input_schema().input_names() == ["text", "text_pair"]
    pairs = [{"text": "the sea", "text_pair": second} for second in ("who sees bert ?", "anna", LONG)]
    scores = [
        float(forward(folder, one["text"], one["text_pair"], truncation=True).logits[0].softmax(0).max())
        for one in pairs
    ]
    assert len({round(score, 3) for score in scores}) == 3
    for given in (pairs, pd.DataFrame(pairs)):
        assert model.predict(given)["score"].tolist() == pytest.approx(scores, abs=1e-5)


def test_a_text_that_is_too_long_is_cut(served: Serve, tmp_path: Path) -> None:
    """It would end in an error of the embeddings, which have no such positions."""
    folder = model_folder(tmp_path / "m", "ElectraForSequenceClassification", initializer_range=0.2)
    model = served(folder, serving_of(ClassificationTask(data=DATA)))
    scores = [float(forward(folder, text, truncation=True).logits[0].softmax(0).max()) for text in (LONG, "the sea")]
    assert model.predict([LONG, "the sea"])["score"].tolist() == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize(
    ("architecture", "pipeline"),
    [("ElectraForPreTraining", "feature-extraction"), ("ElectraForMaskedLM", "fill-mask")],
)
def test_networks_of_pretraining_cut_long_texts_too(
    served: Serve, tmp_path: Path, architecture: str, pipeline: str
) -> None:
    model = served(model_folder(tmp_path / "m", architecture), Serving(pipeline))
    assert len(model.predict([f"[MASK] {LONG}"])) > 0


def test_a_tagger_says_of_a_sentence_without_spans_that_it_has_none(served: Serve, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m", "ElectraForTokenClassification", **TAGS)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["classifier.bias"] = torch.tensor([1e3, 0.0, 0.0, 0.0, 0.0])
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model = served(folder, serving_of(TokenClassificationTask(data=DATA, scheme="BIO")))
    assert model.predict(["the sea .", LONG]) == ["O", "O"]


@pytest.mark.xfail(raises=IndexError, reason="MLflow looks at the first of no tokens; docs/finetuning.md tells of it")
def test_a_tagger_answers_a_text_without_a_token(served: Serve, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m", "ElectraForTokenClassification", **TAGS)
    model = served(folder, serving_of(TokenClassificationTask(data=DATA, scheme="BIO")))
    assert model.predict(["", "\u200b"]) == ["", ""]


def test_a_tagger_labels_spans_by_the_first_pieces_of_their_words(served: Serve, tmp_path: Path) -> None:
    """Of "unseens" the pieces "##seen" and "##s" were never trained to have a label."""
    folder = model_folder(tmp_path / "m", "ElectraForTokenClassification", initializer_range=0.2, **TAGS)
    labels = [TAGS["id2label"][index] for index in forward(folder, "unseens").logits[0, 1:-1].argmax(1).tolist()]
    assert len(labels) == 3
    assert len({label.removeprefix("B-").removeprefix("I-") for label in labels}) > 1
    spans = served(folder, serving_of(TokenClassificationTask(data=DATA, scheme="BIO")))
    assert spans.predict(["unseens"]) == [labels[0].rpartition("-")[2]]


def test_labels_that_mark_no_spans_are_given_for_each_token(served: Serve, tmp_path: Path) -> None:
    """Neighbours that are alike stay two; whoever has the tokenizer finds each word's."""
    folder = model_folder(tmp_path / "m", "ElectraForTokenClassification", id2label={0: "O", 1: "NOUN", 2: "VERB"})
    labels = [("O", "NOUN", "VERB")[index] for index in forward(folder, "the the sea").logits[0, 1:-1].argmax(1)]
    model = served(folder, serving_of(TokenClassificationTask(data=DATA)))
    assert model.predict(["the the sea"]) == [",".join(labels)]
