"""Rows of two segments: [CLS] a [SEP] b [SEP], with token type 1 from b on.

The original makes 90 % of its rows so (build_pretraining_dataset.py; BERT's are all of that kind). It is what teaches
token type 1, which every second text, context and choice is read with once the encoder is finetuned.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from electra_core.batches import SpecialTokens, TokenBatch
from electra_core.randomness import Draws

MIN_TEXT = 2
"""Tokens that two segments need."""


def split_rows(batch: TokenBatch, fraction: float, special: SpecialTokens, draws: Draws) -> TokenBatch:
    """Part some rows in two.

    The first segment takes between a quarter and three quarters of the text, evenly; the original cuts at the line
    that crosses the middle, and packed rows have no lines. The [SEP] between the two takes the room of the last token.

    Args:
        batch: B full rows of L tokens, [CLS] text [SEP].
        fraction: of the rows, on average, that get two segments.
        special: the id of [SEP].
        draws: this step's random numbers; only its seed and step are used, the rows are the batch's.

    Returns:
        The rows with their token types. With L below 5 no text is long enough, and none is parted.

    Raises:
        ValueError: rows may have padding, which the last token of a segment is not.

    Source: google-research/electra, build_pretraining_dataset.py, `_create_example`.
    """
    if not batch.is_packed:
        raise ValueError("rows must be packed to be parted in two segments, got rows that may have padding")
    num_rows, length = batch.input_ids.shape
    text = length - 3  # [CLS] and two [SEP]
    if text < MIN_TEXT:
        return replace(batch, token_type_ids=torch.zeros_like(batch.input_ids))
    chance, where = draws.for_rows(batch.rows).uniform("segments", 2).unbind(1)
    least = max(1, text // 4)
    first = least + (where * (text - 2 * least + 1)).long()  # `where` is below 1: at most text - least
    begin = torch.where(chance < fraction, 1 + first + 1, length)[:, None]  # of the second segment

    places = torch.arange(length, device=batch.input_ids.device).expand(num_rows, length)
    is_second = places >= begin
    ids = batch.input_ids.gather(1, places - is_second.long())
    is_separator = (places == begin - 1) | (places == length - 1)
    return replace(batch, input_ids=ids.masked_fill(is_separator, special.sep_id), token_type_ids=is_second.long())
