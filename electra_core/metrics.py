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
    """Named figures from what `ObjectiveSums.detached` gives, added up. What the objective lacks is left out.

    A share of nothing is 0, as in scikit-learn (precision where nothing was called replaced, say).

    Args:
        sums: by name; each loss and each `_correct` beside its positions.

    Returns:
        generator_loss: nats per position the generator fills.
        generator_accuracy: share of masked positions whose most probable token is the original.
        generator_reward: of an adversarial generator: the discriminator's loss at masked positions, nats.
        mlm_loss: of a main network that predicts tokens: nats per position of its loss.
        mlm_accuracy: share of these whose most probable token is the original.
        discriminator_loss: nats per position the discriminator is asked about.
        discriminator_accuracy: share of these called rightly; about 1 − replaced_fraction for a
            discriminator that has learned nothing, so look at F1.
        discriminator_precision, discriminator_recall, discriminator_f1: of calling a token replaced (logit > 0).
        replaced_fraction: replaced positions as a share of those the discriminator is asked about.
        discriminator_loss_floor: H(replaced_fraction), nats: what a discriminator reaches that knows only how common
            replaced tokens are. One that stays there has not begun to learn.

        Any other loss of the objective, such as `baseline_loss`, in nats per position of its own.
    """
    named: dict[str, float] = {}
    for network in ("generator", "mlm"):
        if f"{network}_loss" in sums:
            named[f"{network}_loss"] = _mean(sums, f"{network}_loss")
        if f"{network}_correct" in sums:
            named[f"{network}_accuracy"] = _mean(sums, f"{network}_correct")
    if "reward" in sums:
        named["generator_reward"] = _mean(sums, "reward")
    others = [name for name in sums if name.endswith("_loss") and name not in named and name != "discriminator_loss"]
    named |= {name: _mean(sums, name) for name in others}
    return named | (_detection_figures(sums) if "num_scored" in sums else {})


def _detection_figures(sums: Mapping[str, float]) -> dict[str, float]:
    num_scored, num_replaced = sums["num_scored"], sums["num_replaced"]
    true_positives = sums["discriminator_true_positives"]
    called_replaced = true_positives + sums["discriminator_false_positives"]
    replaced_fraction = _share(num_replaced, num_scored)
    # A gate that no labels train has no such loss, and so no floor.
    has_loss = "discriminator_loss" in sums
    floor = {"discriminator_loss_floor": binary_entropy(replaced_fraction)} if has_loss else {}
    return {
        **({"discriminator_loss": _mean(sums, "discriminator_loss")} if has_loss else {}),
        "discriminator_accuracy": _share(sums["discriminator_correct"], num_scored),
        "discriminator_precision": _share(true_positives, called_replaced),
        "discriminator_recall": _share(true_positives, num_replaced),
        "discriminator_f1": _share(2 * true_positives, called_replaced + num_replaced),
        "replaced_fraction": replaced_fraction,
        **floor,
    }


def _mean(sums: Mapping[str, float], name: str) -> float:
    return _share(sums[name], sums[f"{name}_positions"])


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
