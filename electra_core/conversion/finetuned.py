"""Finetuned networks: pretrained weights in, classes of Transformers out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from electra_core.batches import SpecialTokens
from electra_core.config import TaskKind
from electra_core.conversion.collector import EMBEDDINGS, Collector, clean_names
from electra_core.conversion.converted import Converted
from electra_core.conversion.to_transformers import backbone_state_dict, prefixed, transformers_config
from electra_core.embeddings import EmbeddingTables
from electra_core.encoder import EncoderLayer
from electra_core.finetuning.heads import ChoiceHead, DenseTextHead, LinearTextHead, TokenHead
from electra_core.finetuning.network import ElectraForFinetuning

ARCHITECTURES: dict[TaskKind, str] = {
    "classification": "ElectraForSequenceClassification",
    "regression": "ElectraForSequenceClassification",
    "token_classification": "ElectraForTokenClassification",
    "question_answering": "ElectraForQuestionAnswering",
    "multiple_choice": "ElectraForMultipleChoice",
}
"""Transformers' class for each task."""

LINEAR_GELU_FROM = 6.0
"""From here on GELU(x) is x, in float32 to the last bit."""


def pretrained_backbone(network: ElectraForFinetuning, pretrained: Mapping[str, Tensor]) -> Converted:
    """Embeddings and layers of any Electra class in our names; `network` is not changed, and its head stays as it is.

    Args:
        network: gives names, shapes and sizes.
        pretrained: state dict of any class of Transformers with an Electra backbone.

    Raises:
        ValueError: a tensor has another shape than ours or is not finite, or the depths differ.
    """
    target = network.state_dict()
    part = Collector("pretrained network", clean_names(pretrained), target)
    part.take_embeddings({name: f"embeddings.{name}" for name in EMBEDDINGS}, network.encoder_config.vocab_size)
    part.take_encoder("encoder", network.encoder)
    return Converted(
        part.state,
        missing=tuple(part.missing),
        unexpected=tuple(sorted(part.source.keys() - part.seen)),
        untouched=tuple(sorted(target.keys() - part.state.keys())),
        notes=tuple(part.notes),
    )


def finetuned_state_dict(
    network: ElectraForFinetuning, label_range: tuple[float, float] | None = None
) -> dict[str, Tensor]:
    """The network for the class that `ARCHITECTURES` names for its task.

    Args:
        network: trained weights.
        label_range: of a regression whose labels were mapped from this range onto 0 to 1: the last layer is stretched,
            so that the exported network answers in the labels' own unit.
    """
    state = backbone_state_dict(EmbeddingTables.of(network.embeddings), network.encoder)
    match network.head:
        case DenseTextHead(dense=dense, out_proj=out_proj):
            state |= prefixed("classifier.dense", dense) | prefixed("classifier.out_proj", out_proj)
        case LinearTextHead(out_proj=out_proj):
            state |= _through_dense(network, out_proj)
        case TokenHead(classifier=classifier):
            is_span = network.head_config.task == "question_answering"
            state |= prefixed("qa_outputs" if is_span else "classifier", classifier)
        case ChoiceHead(summary=summary, classifier=classifier):
            state |= prefixed("sequence_summary.summary", summary) | prefixed("classifier", classifier)
    if label_range is not None:
        low, high = label_range
        state["classifier.out_proj.weight"] *= high - low
        state["classifier.out_proj.bias"].mul_(high - low).add_(low)
    return state


def finetuned_config(
    network: ElectraForFinetuning, special: SpecialTokens, labels: Sequence[str] = ()
) -> dict[str, object]:
    """The `config.json` that goes with `finetuned_state_dict`; `labels` names the classes in order."""
    head = network.head_config
    config = transformers_config(network.encoder_config, special, ARCHITECTURES[head.task])
    config["classifier_dropout"] = head.dropout_prob
    if head.task == "multiple_choice":
        config["summary_last_dropout"] = head.dropout_prob
    if head.task == "regression":
        config |= {"problem_type": "regression", "id2label": {"0": "score"}, "label2id": {"score": 0}}
    elif labels:
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
        if head.task == "classification":
            config["problem_type"] = "single_label_classification"
    return config


def _through_dense(network: ElectraForFinetuning, out_proj: nn.Linear) -> dict[str, Tensor]:
    """G's head in a class with one dense layer and one GELU more: both are made the identity.

    The dense layer adds a constant that lifts everything a LayerNorm can give to where GELU is linear, and the last
    layer's bias takes the constant away again. What is left are float32's roundings at that height, some 1e-6 a unit.
    """
    last = network.encoder.layers[-1]
    assert isinstance(last, EncoderLayer)
    gain, bias = last.output_layer_norm.weight.detach().double(), last.output_layer_norm.bias.detach().double()
    width = gain.shape[0]
    # No value of a vector of mean 0 and variance 1 is further out than √(H − 1).
    lift = math.ceil(float((gain.abs() * math.sqrt(width - 1) + bias.abs()).max()) + LINEAR_GELU_FROM)
    weight = out_proj.weight.detach().double()
    return {
        "classifier.dense.weight": torch.eye(width),
        "classifier.dense.bias": torch.full((width,), float(lift)),
        "classifier.out_proj.weight": weight.float(),
        "classifier.out_proj.bias": (out_proj.bias.detach().double() - lift * weight.sum(dim=1)).float(),
    }
