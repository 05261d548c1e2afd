"""Heads of the tasks an encoder is finetuned on.

B rows, L positions, H hidden_size, C labels. Names of layers are those of Transformers' classes where these have them.
"""

from __future__ import annotations

from torch import Generator, Tensor, nn

from electra_core.config import EncoderConfig, HeadConfig
from electra_core.dropout import dropout
from electra_core.heads import linear_gelu
from electra_core.initialization import glorot_linear, truncated_normal_linear
from electra_core.randomness import Draws


class _Head(nn.Module):
    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.dropout_prob = config.dropout_prob

    def _drop(self, x: Tensor, draws: Draws | None, stream: str) -> Tensor:
        if not self.training or self.dropout_prob == 0:
            return x
        if draws is None:
            raise ValueError(f"draws must be given to train with dropout, got None and {self.dropout_prob}")
        return dropout(x, self.dropout_prob, draws, stream)


class DenseTextHead(_Head):
    """[CLS] → dropout → dense → GELU → dropout → linear: that of `ElectraForSequenceClassification`."""

    def __init__(self, encoder: EncoderConfig, config: HeadConfig, rng: Generator) -> None:
        super().__init__(config)
        width, scale = encoder.hidden_size, encoder.initializer_range
        self.dense = truncated_normal_linear(width, width, scale, rng)
        self.out_proj = truncated_normal_linear(width, config.num_outputs, scale, rng)

    def forward(self, hidden_BLH: Tensor, draws: Draws | None) -> Tensor:
        """float[B, L, H] to logits float[B, C]."""
        first = self._drop(hidden_BLH[:, 0].contiguous(), draws, "head.input")
        logits: Tensor = self.out_proj(self._drop(linear_gelu(self.dense, first), draws, "head.dense"))
        return logits


class LinearTextHead(_Head):
    """[CLS] → dropout → linear: G's."""

    def __init__(self, encoder: EncoderConfig, config: HeadConfig, rng: Generator) -> None:
        super().__init__(config)
        self.out_proj = glorot_linear(encoder.hidden_size, config.num_outputs, rng)

    def forward(self, hidden_BLH: Tensor, draws: Draws | None) -> Tensor:
        """float[B, L, H] to logits float[B, C]."""
        logits: Tensor = self.out_proj(self._drop(hidden_BLH[:, 0].contiguous(), draws, "head.input"))
        return logits


class TokenHead(_Head):
    """Dropout → linear at every position: labels of tokens, or, without dropout, where an answer starts and ends."""

    def __init__(self, encoder: EncoderConfig, config: HeadConfig, rng: Generator) -> None:
        super().__init__(config)
        if config.task == "question_answering":
            self.dropout_prob = 0.0  # neither G nor Transformers drops here
        self.classifier = truncated_normal_linear(
            encoder.hidden_size, config.num_outputs, encoder.initializer_range, rng
        )

    def forward(self, hidden_BLH: Tensor, draws: Draws | None) -> Tensor:
        """float[B, L, H] to logits float[B, L, C]."""
        logits: Tensor = self.classifier(self._drop(hidden_BLH, draws, "head.input"))
        return logits


class ChoiceHead(_Head):
    """[CLS] → dense → GELU → dropout → linear(1): that of `ElectraForMultipleChoice`, one score a row."""

    def __init__(self, encoder: EncoderConfig, config: HeadConfig, rng: Generator) -> None:
        super().__init__(config)
        width, scale = encoder.hidden_size, encoder.initializer_range
        self.summary = truncated_normal_linear(width, width, scale, rng)
        self.classifier = truncated_normal_linear(width, 1, scale, rng)

    def forward(self, hidden_BLH: Tensor, draws: Draws | None) -> Tensor:
        """float[B, L, H], one row for each choice, to logits float[B, 1]."""
        summarised = linear_gelu(self.summary, hidden_BLH[:, 0].contiguous())
        logits: Tensor = self.classifier(self._drop(summarised, draws, "head.dense"))
        return logits


TaskHead = DenseTextHead | LinearTextHead | TokenHead | ChoiceHead


def make_head(encoder: EncoderConfig, config: HeadConfig, rng: Generator) -> TaskHead:
    """The head a config asks for, with weights from `rng`."""
    match config.task:
        case "classification" | "regression":
            text_head = DenseTextHead if config.style == "transformers" else LinearTextHead
            return text_head(encoder, config, rng)
        case "token_classification" | "question_answering":
            return TokenHead(encoder, config, rng)
        case "multiple_choice":
            return ChoiceHead(encoder, config, rng)
