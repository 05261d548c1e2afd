"""From sums over a whole evaluation or logging interval to the figures people read."""

from __future__ import annotations

import math
from collections.abc import Mapping


def binary_entropy(probability: float) -> float:
    """H(p) = −p ln p − (1 − p) ln(1 − p), nats."""
    if not 0 < probability < 1:
        return 0.0
    return -probability * math.log(probability) - (1 - probability) * math.log1p(-probability)


def figures(sums: Mapping[str, float]) -> dict[str, float]:
    """Named figures from the fields of `ObjectiveSums`, added up.

    A share of nothing is 0, as in scikit-learn (precision where nothing was called replaced, say).

    Args:
        sums: every field of `ObjectiveSums` by its name.

    Returns:
        generator_loss: nats per masked position.
        generator_accuracy: share of masked positions whose most probable token is the original.
        discriminator_loss: nats per real position.
        discriminator_accuracy: share of real positions called rightly; about 1 − replaced_fraction for a
            discriminator that has learned nothing, so look at F1.
        discriminator_precision, discriminator_recall, discriminator_f1: of calling a token replaced (logit > 0).
        replaced_fraction: replaced positions as a share of real positions.
        discriminator_loss_floor: H(replaced_fraction), nats: what a discriminator reaches that knows only how common
            replaced tokens are. One that stays there has not begun to learn.
    """
    num_masked, num_real = sums["num_masked"], sums["num_real"]
    true_positives = sums["discriminator_true_positives"]
    called_replaced = true_positives + sums["discriminator_false_positives"]
    replaced_fraction = _share(sums["num_replaced"], num_real)
    return {
        "generator_loss": _share(sums["generator_loss"], num_masked),
        "generator_accuracy": _share(sums["generator_correct"], num_masked),
        "discriminator_loss": _share(sums["discriminator_loss"], num_real),
        "discriminator_accuracy": _share(sums["discriminator_correct"], num_real),
        "discriminator_precision": _share(true_positives, called_replaced),
        "discriminator_recall": _share(true_positives, sums["num_replaced"]),
        "discriminator_f1": _share(2 * true_positives, called_replaced + sums["num_replaced"]),
        "replaced_fraction": replaced_fraction,
        "discriminator_loss_floor": binary_entropy(replaced_fraction),
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
