"""How many masked positions a row has room for."""

from __future__ import annotations

from electra_core.config import MaskingConfig

_SLACK_FRACTION = 0.005


def max_masked_positions(masking: MaskingConfig, sequence_length: int) -> int:
    """N: masked positions a row of `sequence_length` tokens has room for (19 at 128 and 79 at 512 for 0.15).

    G adds 0.005 to the mask fraction before it cuts down to an integer.
    """
    return min(sequence_length, max(1, int((masking.mask_fraction + _SLACK_FRACTION) * sequence_length)))
