"""What is allowed in a spec and hardly meant: sentences for whoever plans or starts the job."""

from __future__ import annotations

from pipelines.specs.pretrain import PretrainSpec


def spec_warnings(spec: PretrainSpec) -> tuple[str, ...]:
    """One sentence for each choice that does not do what it seems to; each starts with the field's name."""
    warnings = []
    weight, sharing = spec.objective.discriminator_weight, spec.model.sharing
    if sharing in ("none", "gdes") and weight > 0 and spec.objective.name != "two_stage":
        # At 0 the discriminator is not trained at all, which is what it says; in two stages it is trained alone.
        warnings.append(
            f"objective.discriminator_weight ({weight:g}) does next to nothing with model.sharing: {sharing}: "
            "no weight gets gradient from both losses, and Adam's updates do not depend on a loss's scale, so it acts "
            "through the joint gradient clip and Adam's epsilon alone. What counts is the ratio of the learning rates."
        )
    if spec.objective.name == "two_stage" and spec.initialization is not None:
        warnings.append(
            "initialization gives the discriminator weights that objective.name: two_stage replaces by the generator's "
            "before they are trained; only what it gives the generator and the discriminator's head lasts."
        )
    return tuple(warnings)
