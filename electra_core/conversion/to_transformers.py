"""Our networks as state dicts and configs of Hugging Face Transformers' Electra classes.

Exports carry `vocab_size` rows: the rows that pad the vocabulary stay behind. Each network is whole, whatever it
shares while pretraining: with `sharing: gdes` the discriminator's embeddings are the sums it reads.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from electra_core.batches import SpecialTokens
from electra_core.config import EncoderConfig
from electra_core.embeddings import EmbeddingTables
from electra_core.encoder import Encoder, EncoderLayer
from electra_core.heads import MaskedLanguageModelHead
from electra_core.parts import exported_networks
from electra_core.pretraining import ElectraForPretraining


def discriminator_state_dict(networks: ElectraForPretraining) -> dict[str, Tensor]:
    """The main network, for whichever classes its heads fit; its backbone loads into every other Electra class too.

    A detection head is that of `ElectraForPreTraining`, a language-model head that of `ElectraForMaskedLM`. All-Tokens
    MLM has both.
    """
    state = backbone_state_dict(networks.discriminator_tables, networks.discriminator)
    if networks.parts.detection_head:
        head = networks.discriminator_head
        state |= prefixed("discriminator_predictions.dense", head.dense)
        state |= prefixed("discriminator_predictions.dense_prediction", head.prediction)
    if networks.parts.language_head:
        state |= _language_head(networks.language_head, networks.vocab_size)
    return state


def generator_state_dict(networks: ElectraForPretraining) -> dict[str, Tensor]:
    """The generator for `ElectraForMaskedLM`."""
    return {
        **backbone_state_dict(networks.generator_tables, networks.generator),
        **_language_head(networks.generator_head, networks.vocab_size),
    }


def exported_state_dicts(networks: ElectraForPretraining) -> dict[str, tuple[dict[str, Tensor], EncoderConfig]]:
    """State dict and sizes of each network that is worth keeping, under its name in `exported_networks`."""
    exported = {}
    for name in exported_networks(networks.objective_config):
        if name == "generator":
            exported[name] = generator_state_dict(networks), networks.generator.config
        else:
            exported[name] = discriminator_state_dict(networks), networks.discriminator.config
    return exported


def transformers_config(encoder: EncoderConfig, special: SpecialTokens, architecture: str) -> dict[str, object]:
    """The `config.json` that goes with a state dict.

    Args:
        encoder: the generator's or the discriminator's sizes.
        special: ids of the special tokens; the config names [PAD]'s.
        architecture: class the state dict is for, "ElectraForPreTraining" say.
    """
    config = {
        "model_type": "electra",
        "architectures": [architecture],
        "vocab_size": encoder.vocab_size,
        "embedding_size": encoder.embedding_size,
        "hidden_size": encoder.hidden_size,
        "num_hidden_layers": encoder.num_hidden_layers,
        "num_attention_heads": encoder.num_attention_heads,
        "intermediate_size": encoder.intermediate_size,
        "hidden_act": "gelu",  # the erf form
        "hidden_dropout_prob": encoder.hidden_dropout_prob,
        "attention_probs_dropout_prob": encoder.attention_probs_dropout_prob,
        "max_position_embeddings": encoder.max_position_embeddings,
        "type_vocab_size": encoder.type_vocab_size,
        "initializer_range": encoder.initializer_range,
        "layer_norm_eps": encoder.layer_norm_eps,
        "pad_token_id": special.pad_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    for name in ("position_embedding_init", "attention_init"):
        if getattr(encoder, name) != "normal":  # ours: the start that the same network without pretraining has
            config[name] = getattr(encoder, name)
    return config


def backbone_state_dict(embeddings: EmbeddingTables, encoder: Encoder) -> dict[str, Tensor]:
    """What every Electra class has: embeddings and layers, copied."""
    state = {
        "electra.embeddings.word_embeddings.weight": _exported(embeddings.word[: encoder.config.vocab_size]),
        "electra.embeddings.position_embeddings.weight": _exported(embeddings.position),
        "electra.embeddings.token_type_embeddings.weight": _exported(embeddings.token_type),
        **prefixed("electra.embeddings.LayerNorm", embeddings.layer_norm),
    }
    if encoder.embeddings_projection is not None:
        state |= prefixed("electra.embeddings_project", encoder.embeddings_projection)
    for index, layer in enumerate(encoder.layers):
        assert isinstance(layer, EncoderLayer)
        state |= {f"electra.encoder.layer.{index}.{name}": tensor for name, tensor in _layer(layer)}
    return state


def _layer(layer: EncoderLayer) -> Iterator[tuple[str, Tensor]]:
    fused = layer.query_key_value
    for name, weight, bias in zip(("query", "key", "value"), fused.weight.chunk(3), fused.bias.chunk(3), strict=True):
        yield f"attention.self.{name}.weight", _exported(weight)
        yield f"attention.self.{name}.bias", _exported(bias)
    yield from prefixed("attention.output.dense", layer.attention_output).items()
    yield from prefixed("attention.output.LayerNorm", layer.attention_layer_norm).items()
    yield from prefixed("intermediate.dense", layer.intermediate).items()
    yield from prefixed("output.dense", layer.output).items()
    yield from prefixed("output.LayerNorm", layer.output_layer_norm).items()


def _language_head(head: MaskedLanguageModelHead, vocab_size: int) -> dict[str, Tensor]:
    """Without `generator_lm_head.weight`: Transformers ties it to the word embeddings and wants it left out."""
    return {
        **prefixed("generator_predictions.dense", head.dense),
        **prefixed("generator_predictions.LayerNorm", head.layer_norm),
        "generator_lm_head.bias": _exported(head.bias[:vocab_size]),
    }


def prefixed(prefix: str, module: nn.Linear | nn.LayerNorm) -> dict[str, Tensor]:
    """Weight and bias of a module under its name there, copied."""
    return {f"{prefix}.weight": _exported(module.weight), f"{prefix}.bias": _exported(module.bias)}


def _exported(tensor: Tensor) -> Tensor:
    # A copy: slices of the fused matrix would share storage, which safetensors refuses, and change with training.
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
