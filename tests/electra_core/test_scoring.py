"""Scores of sentences and of unseen text against Transformers' own classes and against plain loops."""

from __future__ import annotations

import pytest
import torch
import transformers

from electra_core.batches import SpecialTokens, TokenBatch
from electra_core.config import MaskingConfig
from electra_core.conversion.collector import clean_names
from electra_core.conversion.single import single_network
from electra_core.conversion.sizes import encoder_config
from electra_core.masking import apply_mask
from electra_core.metrics import figures
from electra_core.randomness import Draws
from electra_core.scoring.networks import Discriminator, MaskedLanguageModel
from electra_core.scoring.sentences import original_log_probability, pseudo_log_likelihood
from electra_core.scoring.unseen import score_unseen

SPECIAL = SpecialTokens(pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4)
VOCAB, LENGTH = 91, 12
LENGTHS = (12, 7, 4)


def config(hidden: int) -> transformers.ElectraConfig:
    return transformers.ElectraConfig(
        vocab_size=VOCAB,
        embedding_size=16,
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=16,
        initializer_range=0.3,
        pad_token_id=0,
    )


@pytest.fixture(scope="module")
def detector() -> tuple[Discriminator, transformers.ElectraForPreTraining]:
    torch.manual_seed(1)
    theirs = transformers.ElectraForPreTraining(config(32)).eval()
    return loaded(Discriminator, theirs), theirs


@pytest.fixture(scope="module")
def masked_lm() -> tuple[MaskedLanguageModel, transformers.ElectraForMaskedLM]:
    torch.manual_seed(2)
    theirs = transformers.ElectraForMaskedLM(config(24)).eval()
    torch.nn.init.normal_(theirs.generator_lm_head.bias)  # zeros would hide a bias that is left out
    return loaded(MaskedLanguageModel, theirs), theirs


def loaded(made, theirs):
    state = theirs.state_dict()
    ours = made(encoder_config(clean_names(state), num_attention_heads=2))
    converted = single_network(ours, state)
    assert not converted.missing
    assert not converted.untouched
    ours.load_state_dict(converted.state)
    return ours.eval()


@pytest.fixture(scope="module")
def batch() -> TokenBatch:
    """Three sentences of unlike lengths."""
    rng = torch.Generator().manual_seed(3)
    ids = torch.randint(5, VOCAB, (3, LENGTH), generator=rng)
    lengths = torch.tensor(LENGTHS)
    columns = torch.arange(LENGTH)
    ids[:, 0] = SPECIAL.cls_id
    ids[torch.arange(3), lengths - 1] = SPECIAL.sep_id
    mask = columns < lengths[:, None]
    return TokenBatch(ids.where(mask, 0), mask, torch.arange(3))


def test_original_log_probability_is_a_sum_over_ordinary_tokens(detector, batch: TokenBatch) -> None:
    ours, theirs = detector
    got = original_log_probability(ours, batch, SPECIAL)
    for row, length in enumerate(LENGTHS):
        ids = batch.input_ids[row : row + 1, :length]  # alone, without padding
        with torch.no_grad():
            logits = theirs(ids).logits[0, 1:-1]
        expected = torch.log(1 - torch.sigmoid(logits.double())).sum()
        assert got[row].item() == pytest.approx(expected.item(), abs=1e-4)


@pytest.mark.parametrize("rows_at_once", [1, 3, 1000])
def test_pseudo_log_likelihood_masks_each_token_in_turn(masked_lm, batch: TokenBatch, rows_at_once: int) -> None:
    ours, theirs = masked_lm
    got = pseudo_log_likelihood(ours, batch, SPECIAL, rows_at_once)
    for row, length in enumerate(LENGTHS):
        expected = 0.0
        for position in range(1, length - 1):
            ids = batch.input_ids[row : row + 1, :length].clone()
            ids[0, position] = SPECIAL.mask_id
            with torch.no_grad():
                log_probabilities = theirs(ids).logits[0, position].double().log_softmax(dim=-1)
            expected += log_probabilities[batch.input_ids[row, position]].item()
        assert got[row].item() == pytest.approx(expected, abs=1e-3)


def test_unseen_text_gives_the_losses_of_transformers(detector, masked_lm, batch: TokenBatch) -> None:
    draws = Draws(7, 0, torch.arange(3))
    masked = apply_mask(batch, MaskingConfig(), SPECIAL, draws)
    scored = score_unseen(masked_lm[0], detector[0], masked, draws)
    named = figures({name: float(value) for name, value in scored.detached().items()})

    is_masked = torch.zeros_like(batch.attention_mask)
    for row in range(3):
        for position, weight in zip(masked.masked_positions[row], masked.masked_weights[row], strict=True):
            is_masked[row, position] |= bool(weight)
    with torch.no_grad():
        mask = batch.attention_mask.long()
        generated = masked_lm[1](
            masked.generator_input_ids, attention_mask=mask, labels=batch.input_ids.where(is_masked, -100)
        )
        assert named["generator_loss"] == pytest.approx(generated.loss.item(), abs=1e-4)
        assert scored.detection is not None
        corrupted = scored.detection.corrupted_ids
        assert torch.equal(corrupted.where(is_masked, 0), corrupted - batch.input_ids.where(~is_masked, 0))
        labels = (corrupted != batch.input_ids).long()
        judged = detector[1](corrupted, attention_mask=mask, labels=labels)
    assert named["discriminator_loss"] == pytest.approx(judged.loss.item(), abs=1e-4)
    assert named["replaced_fraction"] == pytest.approx(labels.sum().item() / sum(LENGTHS))


def test_without_a_discriminator_nothing_is_detected(masked_lm, batch: TokenBatch) -> None:
    draws = Draws(7, 0, torch.arange(3))
    scored = score_unseen(masked_lm[0], None, apply_mask(batch, MaskingConfig(), SPECIAL, draws), draws)
    assert set(scored.losses) == {"generator_loss"}
    assert scored.detection is None


def test_a_network_without_its_head_is_told_apart(detector, masked_lm) -> None:
    backbone = {k: v for k, v in detector[1].state_dict().items() if k.startswith("electra.")}
    sizes = encoder_config(clean_names(backbone), num_attention_heads=2)
    assert single_network(Discriminator(sizes), backbone).missing[0].startswith("discriminator: discriminator_pred")
    assert single_network(MaskedLanguageModel(sizes), backbone).missing
