"""What choosing an objective changes elsewhere in a spec, where the spec itself says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OBJECTIVE_DEFAULTS: dict[str, dict[str, Any]] = {
    # BERT's shares (Devlin et al. 2019, section 3.1).
    "mlm": {"masking": {"mask_token_fraction": 0.8, "random_token_fraction": 0.1}},
    # Both losses are cross-entropies over ids, of one size; the papers name no weight.
    "replace_mlm": {"objective": {"discriminator_weight": 1.0}},
    "all_tokens_mlm": {"objective": {"discriminator_weight": 1.0}},
    # The discriminator starts from the generator's weights, and then changes while those stand still.
    "two_stage": {"model": {"generator_size_ratio": 1.0, "sharing": "none"}},
}
"""Laid over the preset and under the spec, so that `objective: {name: ...}` alone runs what the paper describes."""


def objective_defaults(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The layer for the objective that a document names; empty where it names none, or none of these."""
    objective = document.get("objective")
    name = objective.get("name") if isinstance(objective, Mapping) else None
    return OBJECTIVE_DEFAULTS.get(name, {}) if isinstance(name, str) else {}
