"""What is allowed in a spec and hardly meant: sentences for whoever plans or starts the job."""

from __future__ import annotations

from pipelines.specs.pretrain import PretrainSpec


def spec_warnings(spec: PretrainSpec) -> tuple[str, ...]:
    """One sentence for each choice that does not do what it seems to; each starts with the field's name."""
    warnings = []
    weight, sharing = spec.objective.discriminator_weight, spec.model.sharing
    if sharing in ("none", "gdes") and weight > 0:
        # At 0 the discriminator is not trained at all, which is what it says.
        warnings.append(
            f"objective.discriminator_weight ({weight:g}) does next to nothing with model.sharing: {sharing}: "
            "no weight gets gradient from both losses, and Adam's updates do not depend on a loss's scale, so it acts "
            "through the joint gradient clip and Adam's epsilon alone. What counts is the ratio of the learning rates."
        )
    return tuple(warnings)
