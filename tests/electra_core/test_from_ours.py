"""Weights of another job of ours."""

import pytest
import torch
from tiny import networks

from electra_core.conversion.from_ours import from_ours


@pytest.mark.parametrize(("theirs", "ours"), [("none", "embeddings"), ("embeddings", "none"), ("gdes", "embeddings")])
def test_embeddings_that_no_name_can_translate_are_refused(theirs, ours):
    state = networks(sharing=theirs).state_dict()
    with pytest.raises(ValueError, match=r"model\.sharing must be that of the checkpoint"):
        from_ours(networks(sharing=ours), state, "discriminator")
    from_ours(networks(sharing=ours), state, "generator")


@pytest.mark.parametrize("sharing", ["none", "embeddings", "gdes"])
def test_every_longer_position_table_is_cut(sharing):
    state = networks(sharing=sharing, max_position_embeddings=48).state_dict()
    target = networks(sharing=sharing)
    converted = from_ours(target, state)
    for name, tensor in target.state_dict().items():
        assert torch.equal(converted.state[name], state[name][: len(tensor)] if tensor.dim() else state[name])
    assert len(converted.notes) == (1 if sharing == "embeddings" else 2)
