"""The Transformer encoder both networks are made of: BERT's, post-LayerNorm, erf GELU.

B rows, L positions, E embedding_size, H hidden_size, A heads, D width of a head.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_core.config import EncoderConfig
from electra_core.dropout import dropout, keep_count
from electra_core.initialization import glorot_linear, sinusoidal_, truncated_normal_, truncated_normal_linear
from electra_core.kernels import attention, compute_dtype, native_kernels
from electra_core.native.functions import EncoderLayerFunction, LayerSettings, NativeDropout
from electra_core.native.library import NativeLibrary
from electra_core.neighbours import hand_on_positions_, look_beside_, look_for_likes_, separate_positions_
from electra_core.randomness import Draws, stream_id

MASKED_SCORE = -1e9
"""Added to the attention scores of what must not be seen: its softmax is exactly 0, and bf16 can hold it (G adds
-10 000)."""


class Embeddings(nn.Module):
    """Word + position + token type → LayerNorm, shared by both networks (G shares the LayerNorm too)."""

    def __init__(self, config: EncoderConfig, rng: torch.Generator) -> None:
        super().__init__()
        width, scale = config.embedding_size, config.initializer_range
        self.word = nn.Parameter(truncated_normal_(torch.empty(config.padded_vocab_size, width), scale, rng))
        with torch.no_grad():
            self.word[config.vocab_size :] = 0.0  # rows no token uses
        self.position = nn.Parameter(truncated_normal_(torch.empty(config.max_position_embeddings, width), scale, rng))
        if config.position_embedding_init == "sinusoidal":
            sinusoidal_(self.position)
        if config.num_position_features:
            separate_positions_(self.word, self.position, config)
        self.token_type = nn.Parameter(truncated_normal_(torch.empty(config.type_vocab_size, width), scale, rng))
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout_prob = config.hidden_dropout_prob

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None, draws: Draws | None, stream: int) -> Tensor:
        """Embed int64[B, L] to float[B, L, E]. `stream` differs between the networks, so their dropout does too."""
        summed = sum_of_embeddings(self.word, self.position, self.token_type, input_ids, token_type_ids)
        return normalise_and_drop(self, self.layer_norm, summed, self.dropout_prob, draws, stream)


def sum_of_embeddings(
    word: Tensor, position: Tensor, token_type: Tensor, input_ids: Tensor, token_type_ids: Tensor | None
) -> Tensor:
    """Look up int64[B, L] in three tables and add: float[B, L, E], before any LayerNorm."""
    length = input_ids.shape[1]
    words = F.embedding(input_ids, word)
    if token_type_ids is None:
        return words + (position[:length] + token_type[0])
    return words + (position[:length] + F.embedding(token_type_ids, token_type))


def normalise_and_drop(
    module: nn.Module,
    layer_norm: nn.LayerNorm,
    summed_BLE: Tensor,
    probability: float,
    draws: Draws | None,
    stream: int,
) -> Tensor:
    """What embeddings end in: LayerNorm, then dropout while `module` trains."""
    return _drop(module, layer_norm(summed_BLE), probability, draws, stream)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward; each added to its input and normalised."""

    def __init__(self, config: EncoderConfig, rng: torch.Generator, name: str) -> None:
        super().__init__()
        hidden, intermediate = config.hidden_size, config.intermediate_size
        linear = partial(truncated_normal_linear, standard_deviation=config.initializer_range, rng=rng)
        self.query_key_value = linear(hidden, 3 * hidden)  # one product for the three of G
        self.attention_output = linear(hidden, hidden)
        self.attention_layer_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.intermediate = linear(hidden, intermediate)
        self.output = linear(intermediate, hidden)
        self.output_layer_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.num_heads = config.num_attention_heads
        self.hidden_dropout_prob = config.hidden_dropout_prob
        self.attention_dropout_prob = config.attention_probs_dropout_prob
        self.attention_stream = stream_id(f"{name}.attention")
        self.attention_output_stream = stream_id(f"{name}.attention_output")
        self.output_stream = stream_id(f"{name}.output")

    def forward(self, x_BLH: Tensor, score_bias: Tensor | None, draws: Draws | None) -> Tensor:
        """float[B, L, H] to float[B, L, H]; `score_bias` is float[B, 1, 1, L], float[B or 1, 1, L, L] or None."""
        hidden, intermediate = x_BLH.shape[-1], self.intermediate.out_features
        native = native_kernels(x_BLH, hidden // self.num_heads, intermediate)
        # The compiled kernels know padding, which is the same for every query, and no other bias.
        is_padding = score_bias is None or (score_bias.shape[-2] == 1 and len(score_bias) == len(x_BLH))
        if native is not None and is_padding:
            return self._forward_native(native, x_BLH, score_bias, draws)
        attended = self.attention_output(self._attend(x_BLH, score_bias, draws))
        attended = _drop(self, attended, self.hidden_dropout_prob, draws, self.attention_output_stream)
        x_BLH = self.attention_layer_norm(x_BLH + attended)
        transformed = self.output(F.gelu(self.intermediate(x_BLH)))
        transformed = _drop(self, transformed, self.hidden_dropout_prob, draws, self.output_stream)
        normalised: Tensor = self.output_layer_norm(x_BLH + transformed)
        return normalised

    def _forward_native(
        self, library: NativeLibrary, x_BLH: Tensor, score_bias: Tensor | None, draws: Draws | None
    ) -> Tensor:
        settings = LayerSettings(
            library=library,
            dtype=compute_dtype(x_BLH),
            num_heads=self.num_heads,
            epsilon=self.attention_layer_norm.eps,
            attention=_native_dropout(self, self.attention_dropout_prob, draws, self.attention_stream),
            attention_output=_native_dropout(self, self.hidden_dropout_prob, draws, self.attention_output_stream),
            output=_native_dropout(self, self.hidden_dropout_prob, draws, self.output_stream),
        )
        key_bias_BL = None if score_bias is None else score_bias.reshape(len(score_bias), -1).float().contiguous()
        transformed: Tensor = EncoderLayerFunction.apply(
            settings,
            x_BLH,
            key_bias_BL,
            self.query_key_value.weight,
            self.query_key_value.bias,
            self.attention_output.weight,
            self.attention_output.bias,
            self.attention_layer_norm.weight,
            self.attention_layer_norm.bias,
            self.intermediate.weight,
            self.intermediate.bias,
            self.output.weight,
            self.output.bias,
            self.output_layer_norm.weight,
            self.output_layer_norm.bias,
        )
        return transformed

    def _attend(self, x_BLH: Tensor, score_bias: Tensor | None, draws: Draws | None) -> Tensor:
        rows, length, hidden = x_BLH.shape
        heads = self.query_key_value(x_BLH).view(rows, length, 3, self.num_heads, hidden // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)  # each float[B, A, L, D]
        drop = None
        if self.training and self.attention_dropout_prob > 0:
            drop = partial(
                _drop,
                self,
                probability=self.attention_dropout_prob,
                draws=draws,
                stream=self.attention_stream,
            )
        context_BALD = attention(query, key, value, score_bias, drop)
        return context_BALD.transpose(1, 2).reshape(rows, length, hidden)


class Encoder(nn.Module):
    """Embeddings in, hidden states out; a projection leads in where the two widths differ."""

    def __init__(self, config: EncoderConfig, rng: torch.Generator, name: str) -> None:
        super().__init__()
        self.config = config
        self.embeddings_projection: nn.Linear | None = None
        if config.embedding_size != config.hidden_size:
            self.embeddings_projection = glorot_linear(config.embedding_size, config.hidden_size, rng)
        layers = [EncoderLayer(config, rng, f"{name}.layer{index}") for index in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(layers)
        if config.num_position_features:
            if self.embeddings_projection is not None:
                hand_on_positions_(self.embeddings_projection, config)
            projections = [layer.query_key_value for layer in layers]
            look_beside_(projections[0], config)
            for index, projection in enumerate(projections):
                look_for_likes_(projection, config, 0 if index else config.num_position_features)
        self.embeddings_stream = stream_id(f"{name}.embeddings")

    def forward(self, embedded_BLE: Tensor, attention_mask: Tensor | None, draws: Draws | None) -> Tensor:
        """Encode.

        Args:
            embedded_BLE: float[B, L, E], from `Embeddings`.
            attention_mask: bool[B, L], False at padding; None where no row has padding.
            draws: for dropout while training; None is enough otherwise.

        Returns:
            float[B, L, H]; the last layer's output.
        """
        score_bias = None
        if attention_mask is not None:
            score_bias = (~attention_mask)[:, None, None, :].to(embedded_BLE.dtype) * MASKED_SCORE
        return self.encode(embedded_BLE, score_bias, draws)

    def encode(self, embedded_BLE: Tensor, score_bias: Tensor | None, draws: Draws | None) -> Tensor:
        """`forward` for any rule of who sees whom.

        Args:
            embedded_BLE: as there.
            score_bias: added to the attention scores: float[B, 1, 1, L], or float[B or 1, 1, L, L] where queries differ
                in what they see; None where all see everything.
            draws: as there.
        """
        x_BLH = embedded_BLE
        if self.embeddings_projection is not None:
            x_BLH = self.embeddings_projection(x_BLH)
        for layer in self.layers:
            x_BLH = layer(x_BLH, score_bias, draws)
        return x_BLH


def _native_dropout(module: nn.Module, probability: float, draws: Draws | None, stream: int) -> NativeDropout:
    if not module.training or keep_count(probability) == 256:
        return NativeDropout()
    if draws is None:
        raise ValueError(f"draws must be given to train with dropout, got None with a probability of {probability}")
    return NativeDropout(keep_count(probability), draws.row_keys(stream))


def _drop(module: nn.Module, x: Tensor, probability: float, draws: Draws | None, stream: int) -> Tensor:
    if not module.training or probability == 0:
        return x
    if draws is None:
        raise ValueError(f"draws must be given to train with dropout, got None with a probability of {probability}")
    return dropout(x, probability, draws, stream)
