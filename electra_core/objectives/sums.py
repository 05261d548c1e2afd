"""What an objective returns."""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor


@dataclass(frozen=True, slots=True)
class ObjectiveSums:
    """Sums over the positions of one micro-batch, each a 0-dim float32 tensor.

    Sums and not means: the means of the objective run over the whole global batch, so whoever knows all its workers
    and micro-batches divides. Only the two losses carry gradient.
    """

    generator_loss: Tensor
    """Cross-entropy over masked positions, nats."""
    discriminator_loss: Tensor
    """Binary cross-entropy over real positions, nats."""
    num_masked: Tensor
    """Masked positions."""
    num_real: Tensor
    """Positions that are not padding."""
    generator_correct: Tensor
    """Masked positions where the generator's most probable token is the original."""
    num_replaced: Tensor
    """Positions whose sample differs from the original."""
    discriminator_true_positives: Tensor
    """Replaced positions called replaced."""
    discriminator_false_positives: Tensor
    """Original positions called replaced."""
    discriminator_correct: Tensor
    """Real positions called rightly."""

    def total(self, num_masked: Tensor | float, num_real: Tensor | float, discriminator_weight: float) -> Tensor:
        """The loss to differentiate: generator_loss / num_masked + λ · discriminator_loss / num_real.

        Args:
            num_masked: masked positions of the global batch.
            num_real: real positions of the global batch.
            discriminator_weight: λ.
        """
        return self.generator_loss / num_masked + discriminator_weight * (self.discriminator_loss / num_real)

    def detached(self) -> dict[str, Tensor]:
        """Name to value without gradient, in the order of the fields."""
        return {field.name: getattr(self, field.name).detach() for field in fields(self)}
