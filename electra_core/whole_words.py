"""Choosing whole words to mask, with static shapes and no loop over words.

B rows, L positions. A word is a token and the continuations after it ("##" in WordPiece). BERT shuffles the words and
takes one after the other, passing over those that no longer fit. Here the same is done for all rows at once, in rounds.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def choose_whole_words(may_be_masked: Tensor, is_continuation: Tensor, scores: Tensor, budget: Tensor) -> Tensor:
    """The positions of randomly chosen whole words, at most `budget` of them per row.

    When it ends, no word that was left out would still fit. The choice is that of BERT's procedure
    (google-research/bert, `create_pretraining_data.py`) for words shuffled by their scores, with two differences that
    come from rows being cut anywhere: what stands between the row's start and its first whole word counts as a word,
    and so does what the row's end leaves of its last. As there, long words are masked somewhat less often than short
    ones: the longer a word, the sooner it no longer fits.

    Args:
        may_be_masked: bool[B, L]; False at special tokens and padding. Each such position ends a word.
        is_continuation: bool[B, L]; True where the token goes on with the word before it.
        scores: int64[B, L], not negative; a word's is that of its first token, and larger goes first.
        budget: int64[B].

    Returns:
        bool[B, L].
    """
    length = may_be_masked.shape[1]
    places = torch.arange(length, device=scores.device).expand_as(scores)
    follows = torch.zeros_like(may_be_masked)
    follows[:, 1:] = is_continuation[:, 1:] & may_be_masked[:, 1:] & may_be_masked[:, :-1]
    # Where the word of each position starts, and where the next one does: L after the last.
    starts = places.masked_fill(follows, 0).cummax(dim=1).values
    next_starts = torch.full_like(places, length)
    next_starts[:, :-1] = places.masked_fill(follows, length)[:, 1:].flip(1).cummin(dim=1).values.flip(1)
    is_word = may_be_masked & ~follows
    sizes = (next_starts - places).masked_fill(~is_word, length + 1)  # larger than any budget: never taken

    order = scores.masked_fill(~is_word, -1).sort(dim=1, descending=True, stable=True).indices
    rounds = num_rounds(length)
    taken = torch.zeros_like(may_be_masked).scatter(1, order, take_in_order(sizes.gather(1, order), budget, rounds))
    return taken.gather(1, starts)


def take_in_order(sizes: Tensor, budget: Tensor, rounds: int) -> Tensor:
    """Go through int64[B, L] positive sizes from the left and take, bool[B, L], what fits into what is left of
    int64[B] `budget`.

    A round takes the longest run, among sizes that fit by themselves, that fits as a whole. The size that ended the
    run does not fit afterwards, so one pass over the sizes from the left would have taken the same.
    """
    left = budget[:, None]
    taken = torch.zeros_like(sizes, dtype=torch.bool)
    for _ in range(rounds):
        fitting = sizes.masked_fill((sizes > left) | taken, 0)
        takes = (fitting > 0) & (fitting.cumsum(dim=1) <= left)
        taken = taken | takes
        left = left - (fitting * takes).sum(dim=1, keepdim=True)
    return taken


def num_rounds(length: int) -> int:
    """Rounds after which nothing fits, whatever the sizes of words in a row of `length` tokens.

    Say m rounds take something, at least 1 each. After round k at least m − k are left, and a word larger than what is
    left, so of m − k + 1 tokens or more, had ended it. Those words are all different and never taken, so
    m + (2 + 3 + … + m) ≤ length: 14 rounds at 128 tokens, 30 at 512.
    """
    return max(1, (math.isqrt(8 * length + 17) - 3) // 2)
