"""What is minimised."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from electra_core.config.base import FrozenModel

ObjectiveName = Literal[
    "electra",
    "electra_15",
    "random_15",
    "replace_mlm",
    "all_tokens_mlm",
    "mlm",
    "electric",
    "two_stage",
    "adversarial",
]
GeneratorKind = Literal["transformer", "uniform", "unigram"]

# Why a field of `ObjectiveConfig` has no meaning under an objective.
_NEED_A_NETWORK = {
    "mlm": "which has no generator",
    "electric": "whose noise is a two-tower cloze network",
    "two_stage": "whose discriminator starts from the generator's weights",
    "adversarial": "whose generator is trained against the discriminator",
}
_NO_TEMPERATURE = {
    "mlm": "which samples nothing",
    "electric": "whose loss needs the probabilities its noise was drawn with",
}
_ONE_LOSS = {
    "mlm": "which has one loss and nothing to weigh it against",
    "two_stage": "which minimises one loss at a time",
}
_MAY_BE_CORRECT = {
    "mlm": "which samples nothing",
    "electric": "whose noise must be able to be the original",
    "adversarial": "whose generator is rewarded where its sample is the original, too",
}


class ObjectiveConfig(FrozenModel):
    """What is minimised: an objective of the paper (section 3.4 and appendices), and where replacements come from."""

    name: ObjectiveName = "electra"
    """`electra`: MLM(generator) + λ · RTD(discriminator) over every token. `electra_15`: RTD at masked positions only.
    `random_15`: RTD at as many other random positions. `replace_mlm`: the main network predicts the originals of
    masked positions from the corrupted input. `all_tokens_mlm`: it predicts every token, with a copy gate. `mlm`: BERT.
    `electric`: noise-contrastive estimation of an energy (arXiv:2012.08561). `two_stage`: the generator first, then the
    discriminator from its weights. `adversarial`: the generator is trained against the discriminator by REINFORCE."""
    generator: GeneratorKind = "transformer"
    """Where replacements come from: a network trained as a masked language model, `uniform` over all ordinary tokens,
    or `unigram`, their frequency in the corpus. The last two have nothing to train."""
    discriminator_weight: Annotated[float, Field(ge=0)] = 50.0
    """λ, the weight of the main network's loss beside the generator's (paper, section 3.1)."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the generator's logits when it samples. It never changes the masked-LM loss."""
    disallow_correct: bool = False
    """The generator never samples the original token."""
    two_stage_switch_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """`two_stage` alone: share of the steps that train the generator; the rest train the discriminator. The paper
    gives both the same number."""

    @model_validator(mode="after")
    def _fields_apply(self) -> Self:
        if self.generator != "transformer" and self.name in _NEED_A_NETWORK:
            raise ValueError(
                f"generator must be 'transformer' where name is {self.name!r}, {_NEED_A_NETWORK[self.name]}, "
                f"got {self.generator!r}"
            )
        if self.temperature != 1.0 and (self.generator != "transformer" or self.name in _NO_TEMPERATURE):
            reason = _NO_TEMPERATURE.get(self.name, f"since a {self.generator} generator has no logits to divide")
            raise ValueError(f"temperature must be 1 where name is {self.name!r}, {reason}, got {self.temperature}")
        if self.disallow_correct and self.name in _MAY_BE_CORRECT:
            raise ValueError(
                f"disallow_correct must be false where name is {self.name!r}, {_MAY_BE_CORRECT[self.name]}, got true"
            )
        default_weight = type(self).model_fields["discriminator_weight"].default
        if self.name in _ONE_LOSS and self.discriminator_weight != default_weight:
            raise ValueError(
                f"discriminator_weight must be left at {default_weight:g} where name is {self.name!r}, "
                f"{_ONE_LOSS[self.name]}, got {self.discriminator_weight:g}"
            )
        default_fraction = type(self).model_fields["two_stage_switch_fraction"].default
        if self.name != "two_stage" and self.two_stage_switch_fraction != default_fraction:
            raise ValueError(
                f"two_stage_switch_fraction must be left at {default_fraction:g} where name is {self.name!r}, which "
                f"has one stage, got {self.two_stage_switch_fraction:g}"
            )
        return self

    def stage_starts(self, num_train_steps: int) -> tuple[int, ...]:
        """First step of each stage of a run; every objective but `two_stage` has one stage."""
        if self.name != "two_stage":
            return (0,)
        return (0, round(self.two_stage_switch_fraction * num_train_steps))

    def stage_at(self, step: int, num_train_steps: int) -> int:
        """The stage that a step, from 0, belongs to; a pure function of the step, so that a job resumes in it."""
        return sum(start <= step for start in self.stage_starts(num_train_steps)) - 1


ELECTRA = ObjectiveConfig()
"""The paper's own objective, which is meant where none is named."""
