"""How weights change, and how fast."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from electra_core.config.base import FrozenModel

DEFAULT_DECAY_FRACTION = 0.2
"""Of `warmup_stable_decay`: 10 to 20 % of the steps suffice (Hägele et al. 2024, arXiv:2405.18392, section 3)."""


class OptimizerConfig(FrozenModel):
    """How weights change: decoupled weight decay and one clip over both networks under every name."""

    name: Literal["electra_adam", "adamw", "muon"] = "electra_adam"
    """`electra_adam` is Adam without bias correction (G's `optimization.py`), `adamw` has it (arXiv:1711.05101), `muon`
    orthogonalises the momentum of matrices inside the networks and gives the rest to `adamw` (arXiv:2502.16982)."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 5e-4
    """Peak of the schedule."""
    embedding_learning_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    """Peak rate of the tables of words; `learning_rate` when absent. A rare word's row is moved in few steps, and from
    numbers as large as `initializer_range`. Whether a larger rate serves an encoder depends on network and corpus:
    measured both ways (`examples/downstream/README.md`), so search for it."""
    schedule: Literal["linear", "cosine", "warmup_stable_decay"] = "linear"
    """`linear` is G's: linear decay from step 0 to zero at the last step, times the warm-up factor. `cosine` falls
    along half a cosine after the warm-up (arXiv:1608.03983). `warmup_stable_decay` stays at the peak and falls in a
    line over the last steps (arXiv:2404.06395)."""
    warmup_steps: Annotated[int, Field(ge=0)] = 10_000
    """The factor min(1, step / warmup_steps) multiplies the decay."""
    final_rate_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Rate at the last step as a share of the peak; `linear` always ends at zero."""
    decay_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of all steps in which `warmup_stable_decay` falls; 0.2 when absent."""
    layerwise_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    """The rate of a layer is this times that of the layer above it, in both networks; heads have the full rate and
    embeddings the lowest. For training on from finished weights: it keeps what lower layers know."""
    layerwise_decay_skips_one: bool = False
    """Count one layer more between the head and all else, as G's code does: its top layer has `layerwise_decay`
    squared, where the formula of its paper has it once."""
    discriminator_learning_rate_ratio: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Rate of the discriminator and its head as a multiple of the generator's. What the two share has the generator's.
    Where they share nothing this ratio, not λ, balances the two."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Decoupled; not applied to LayerNorm and biases. Embeddings are decayed."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """The gradient of both networks together is scaled down to this norm."""
    muon_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Share of Muon's momentum, Nesterov's, that is kept per step."""
    muon_ns_steps: Annotated[int, Field(ge=1, le=20)] = 5
    """Newton–Schulz iterations that make a matrix of momentum orthogonal."""
    muon_learning_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    """Peak rate of the matrices Muon takes; `learning_rate` when absent, which fits since updates are as large as
    AdamW's. The schedule is the same."""

    @model_validator(mode="after")
    def _fields_have_a_use(self) -> Self:
        if self.schedule == "linear" and self.final_rate_fraction:
            raise ValueError(
                "final_rate_fraction must be 0 where schedule is linear, which ends at zero, "
                f"got {self.final_rate_fraction}"
            )
        if self.schedule != "warmup_stable_decay" and self.decay_fraction is not None:
            raise ValueError(
                "decay_fraction must be absent unless schedule is warmup_stable_decay, "
                f"got {self.decay_fraction} and {self.schedule}"
            )
        if self.layerwise_decay_skips_one and self.layerwise_decay is None:
            raise ValueError("layerwise_decay_skips_one must be false where layerwise_decay is absent, got true")
        if self.name != "muon" and self.muon_learning_rate is not None:
            raise ValueError(
                f"muon_learning_rate must be absent unless name is muon, got {self.muon_learning_rate} and {self.name}"
            )
        return self

    def decay_steps(self, num_train_steps: int) -> int:
        """Steps in which `warmup_stable_decay` falls: at least one."""
        fraction = DEFAULT_DECAY_FRACTION if self.decay_fraction is None else self.decay_fraction
        return max(1, round(fraction * num_train_steps))
