"""The networks of an objective together, and what each of them answers.

B rows, L positions, N masked positions per row, M = B · N, H hidden_size, V padded_vocab_size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from electra_core.cloze import ClozeTowers
from electra_core.config import ModelConfig, ObjectiveConfig
from electra_core.embeddings import EmbeddingTables, discriminators_own, share_parameters
from electra_core.encoder import Embeddings, Encoder
from electra_core.heads import MaskedLanguageModelHead, ReplacedTokenDetectionHead, gather_positions
from electra_core.noise import NoiseGenerator
from electra_core.parts import check_model_fits, cloze_head_encoder, generator_encoder, network_parts
from electra_core.randomness import Draws


class PretrainingNetworks(nn.Module):
    """The networks of an objective; of two, what `model.sharing` says is shared. `embeddings` are the generator's, and
    the discriminator's where it has none of its own.
    """

    # Only the parts that `network_parts` names for the objective exist.
    generator: Encoder
    generator_head: MaskedLanguageModelHead
    generator_baseline: nn.Parameter
    cloze_towers: ClozeTowers
    cloze_head: MaskedLanguageModelHead
    discriminator_head: ReplacedTokenDetectionHead
    language_head: MaskedLanguageModelHead
    noise_generator: NoiseGenerator

    def __init__(
        self,
        model: ModelConfig,
        vocab_size: int,
        objective: ObjectiveConfig,
        rng: torch.Generator,
        noise: Tensor | None = None,
    ) -> None:
        """Build on the CPU with the original's start.

        Args:
            model: sizes of the networks, and what they share.
            vocab_size: ids the tokenizer can produce.
            objective: which objective they are for; decides which parts there are.
            rng: the only source of the initial weights; the global random state is not touched.
            noise: float64[vocab_size] from `noise_weights`, for the generators that are no networks.

        Raises:
            ValueError: `noise` is missing, or given where the generator is a network; or the sizes or the sharing do
                not fit the objective.
        """
        super().__init__()
        check_model_fits(model, objective)
        if (noise is None) != (objective.generator == "transformer"):
            raise ValueError(
                "noise must be given where objective.generator is 'uniform' or 'unigram' and nowhere else, "
                f"got {None if noise is None else tuple(noise.shape)} and {objective.generator!r}"
            )
        self.model_config = model
        self.vocab_size = vocab_size
        self.objective_config = objective
        self.stage = 0
        """Which stage of the objective they are in; most objectives have only stage 0."""
        self.parts = parts = network_parts(objective)
        generator = generator_encoder(model, objective, vocab_size)
        discriminator = model.discriminator(vocab_size)
        self.embeddings = Embeddings(discriminator, rng)
        if parts.generator:
            self.generator = Encoder(generator, rng, "generator")
            self.generator_head = MaskedLanguageModelHead(generator, rng)
        if parts.cloze_towers:
            self.cloze_towers = ClozeTowers(generator, rng)
            self.cloze_head = MaskedLanguageModelHead(cloze_head_encoder(generator), rng)
        self.discriminator = Encoder(discriminator, rng, "discriminator")
        if parts.detection_head:
            self.discriminator_head = ReplacedTokenDetectionHead(discriminator, rng)
        if parts.language_head:
            self.language_head = MaskedLanguageModelHead(discriminator, rng)
        # Drawn last: every other weight starts alike, whatever is shared.
        self.discriminator_embeddings = discriminators_own(model.sharing, discriminator, rng)
        if model.sharing == "all":
            share_parameters(self.generator, self.discriminator)
        if parts.baseline:
            self.generator_baseline = nn.Parameter(torch.zeros(generator.hidden_size))
        if noise is not None:
            self.noise_generator = NoiseGenerator(noise)

    @property
    def generator_tables(self) -> EmbeddingTables:
        """The embeddings the generator reads."""
        return EmbeddingTables.of(self.embeddings)

    @property
    def discriminator_tables(self) -> EmbeddingTables:
        """The embeddings the discriminator reads; of `gdes` the sums, without gradient to the generator's part."""
        own = self.discriminator_embeddings
        return self.generator_tables if own is None else own.tables(self.embeddings)

    def generator_hidden(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None = None,
        draws: Draws | None = None,
    ) -> Tensor:
        """The generator's last hidden states, float[B, L, H].

        Args:
            input_ids: int64[B, L].
            attention_mask: bool[B, L], False at padding; None where no row has padding.
            token_type_ids: int64[B, L]; None is all 0.
            draws: needed while training with dropout.
        """
        embedded = self.embeddings(input_ids, token_type_ids, draws, self.generator.embeddings_stream)
        hidden: Tensor = self.generator(embedded, attention_mask, draws)
        return hidden

    def masked_logits(self, hidden_BLH: Tensor, positions: Tensor) -> Tensor:
        """Generator logits float[M, V] at int64[B, N] positions, V padded with impossible ids."""
        hidden_MH = gather_positions(hidden_BLH, positions)
        logits: Tensor = self.generator_head(hidden_MH, self.generator_tables.word)
        return logits

    def generator_logits(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        positions: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Generator logits float32[B, N, vocab_size] at int64[B, N] positions. Call in eval mode."""
        hidden_BLH = self.generator_hidden(input_ids, attention_mask, token_type_ids)
        logits_MV = self.masked_logits(hidden_BLH, positions).float()
        return logits_MV.view(*positions.shape, -1)[..., : self.vocab_size]

    def baseline_logits(self, hidden_BLH: Tensor, positions: Tensor) -> Tensor:
        """wᵀh of the generator's hidden states at int64[B, N] positions, float[M]."""
        return gather_positions(hidden_BLH, positions) @ self.generator_baseline

    def cloze_logits(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None = None,
        draws: Draws | None = None,
    ) -> Tensor:
        """Logits of each token given all others, float[B, L, V], V padded. Arguments as for `generator_hidden`."""
        hidden = self.cloze_towers(self.embeddings, input_ids, attention_mask, token_type_ids, draws)
        logits: Tensor = self.cloze_head(hidden, self.generator_tables.word)
        return logits

    def discriminator_hidden(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None = None,
        draws: Draws | None = None,
    ) -> Tensor:
        """The discriminator's last hidden states, float[B, L, H]. Arguments as for `generator_hidden`."""
        stream, own = self.discriminator.embeddings_stream, self.discriminator_embeddings
        if own is None:
            embedded = self.embeddings(input_ids, token_type_ids, draws, stream)
        else:
            embedded = own(self.embeddings, input_ids, token_type_ids, draws, stream)
        hidden: Tensor = self.discriminator(embedded, attention_mask, draws)
        return hidden

    def discriminator_logits(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None = None,
        draws: Draws | None = None,
    ) -> Tensor:
        """Logit of P(replaced) at every position, float32[B, L]. Arguments as for `generator_hidden`."""
        hidden_BLH = self.discriminator_hidden(input_ids, attention_mask, token_type_ids, draws)
        logits: Tensor = self.discriminator_head(hidden_BLH)
        return logits.float()

    def language_logits(self, hidden_BLH: Tensor) -> Tensor:
        """The main network's logits of ids float[B, L, V] from its last hidden states, V padded with impossible ids."""
        logits: Tensor = self.language_head(hidden_BLH, self.discriminator_tables.word)
        return logits
