"""What the discriminator reads its tokens from, where that is not simply the generator's embeddings.

B rows, L positions, E embedding_size, V padded_vocab_size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from electra_core.config import EncoderConfig, Sharing
from electra_core.encoder import Embeddings, normalise_and_drop, sum_of_embeddings
from electra_core.randomness import Draws


@dataclass(frozen=True, slots=True)
class EmbeddingTables:
    """The embeddings one network reads, wherever their values come from."""

    word: Tensor
    """float[V, E]."""
    position: Tensor
    """float[max_position_embeddings, E]."""
    token_type: Tensor
    """float[type_vocab_size, E]."""
    layer_norm: nn.LayerNorm

    @classmethod
    def of(cls, embeddings: Embeddings) -> EmbeddingTables:
        """The parameters themselves."""
        return cls(embeddings.word, embeddings.position, embeddings.token_type, embeddings.layer_norm)


class SeparateEmbeddings(nn.Module):
    """Embeddings that have nothing to do with the generator's."""

    def __init__(self, config: EncoderConfig, rng: torch.Generator) -> None:
        super().__init__()
        self.own = Embeddings(config, rng)

    def forward(
        self,
        _generators: Embeddings,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        draws: Draws | None,
        stream: int,
    ) -> Tensor:
        """Embed int64[B, L] to float[B, L, E]."""
        embedded: Tensor = self.own(input_ids, token_type_ids, draws, stream)
        return embedded

    def tables(self, _generators: Embeddings) -> EmbeddingTables:
        """What the discriminator reads."""
        return EmbeddingTables.of(self.own)


class DisentangledEmbeddings(nn.Module):
    """E_D = stop_gradient(E_G) + Δ: the generator shapes the discriminator's embeddings, never the other way round.

    All three tables have a Δ, which starts at 0: what either network's loss may not touch is then exactly what the
    other one owns, and both read the same sums at the start. (DeBERTaV3's code has a Δ for words and positions; it has
    no token types.) The LayerNorm is the discriminator's own, as in DeBERTaV3: shared, its gain and bias would let the
    discriminator's gradient into the generator after all, and a Δ of them would only be another way to write them.

    Weight decay pulls Δ to 0, so the discriminator's embeddings to the generator's.

    Source: He, Gao and Chen 2021, arXiv:2111.09543, section 3.3.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.embedding_size
        self.word_delta = nn.Parameter(torch.zeros(config.padded_vocab_size, width))
        self.position_delta = nn.Parameter(torch.zeros(config.max_position_embeddings, width))
        self.token_type_delta = nn.Parameter(torch.zeros(config.type_vocab_size, width))
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout_prob = config.hidden_dropout_prob

    def forward(
        self, generators: Embeddings, input_ids: Tensor, token_type_ids: Tensor | None, draws: Draws | None, stream: int
    ) -> Tensor:
        """Embed int64[B, L] to float[B, L, E]. The generator's tables are an argument: a second reference to them
        would be a second name for them in checkpoints.
        """
        # Two look-ups instead of one in a sum of tables, which would read and write V × E numbers in every step.
        with torch.no_grad():
            theirs = sum_of_embeddings(
                generators.word, generators.position, generators.token_type, input_ids, token_type_ids
            )
        delta = sum_of_embeddings(
            self.word_delta, self.position_delta, self.token_type_delta, input_ids, token_type_ids
        )
        return normalise_and_drop(self, self.layer_norm, theirs + delta, self.dropout_prob, draws, stream)

    def tables(self, generators: Embeddings) -> EmbeddingTables:
        """What the discriminator reads: the sums, with gradient to Δ only."""
        return EmbeddingTables(
            generators.word.detach() + self.word_delta,
            generators.position.detach() + self.position_delta,
            generators.token_type.detach() + self.token_type_delta,
            self.layer_norm,
        )


def discriminators_own(
    sharing: Sharing, config: EncoderConfig, rng: torch.Generator
) -> SeparateEmbeddings | DisentangledEmbeddings | None:
    """The discriminator's own embeddings, or None where it reads the generator's."""
    if sharing == "none":
        return SeparateEmbeddings(config, rng)
    return DisentangledEmbeddings(config) if sharing == "gdes" else None


def share_parameters(source: nn.Module, target: nn.Module) -> None:
    """Make every parameter of `target` the one of the same name in `source`.

    The two stay modules of their own, so that each keeps its streams of random numbers: run through one module, both
    networks would drop the same elements.
    """
    modules = dict(source.named_modules())
    for path, module in target.named_modules():
        for name, _ in list(module.named_parameters(recurse=False)):
            setattr(module, name, getattr(modules[path], name))
