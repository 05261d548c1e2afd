"""The same step with the Electra classes of Hugging Face Transformers: as users write it, and at its best.

The boundary is the model's code: settings, precision, compiler, optimizer and everything around the networks are the
user's to choose, the modules are Transformers'. `own_dropout` oversteps it, to show what dropout alone costs there.

B rows, L positions, N masked positions per row, M = B · N, V vocabulary.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from contenders.agreement import DTYPES, Answer, Contender, answered
from contenders.ours import LEARNING_RATE
from contenders.sizes import SPECIAL, Size, batches_of, networks_of, question
from electra_core.config import ObjectiveConfig
from electra_core.conversion.to_transformers import discriminator_state_dict, generator_state_dict, transformers_config
from electra_core.sampling import sample

_NEVER = -1e9
"""Bias of logits that pad the vocabulary."""


@dataclass(frozen=True)
class Settings:
    """What a knowing user may choose."""

    precision: str = "fp32"
    attention: str = "eager"
    is_compiled: bool = False
    uses_onednn: bool = False
    """For float32 products on the CPU, in place of MKL."""
    own_dropout: bool = False
    """Transformers' dropout replaced by one that draws a byte per element."""


class Masked(NamedTuple):
    """Rows with the same number of masked positions each."""

    input_ids: Tensor
    """int64[B, L]; what the generator sees."""
    original_ids: Tensor
    positions: Tensor
    """int64[B, N]."""


class Pair(nn.Module):
    """Both networks with the embeddings tied, holding the weights our own start with."""

    def __init__(self, size: Size, attention: str, vocab_size: int) -> None:
        super().__init__()
        ours = networks_of(size)
        self.generator = ElectraForMaskedLM(_config(size, ours.generator.config, "ElectraForMaskedLM", vocab_size))
        self.discriminator = ElectraForPreTraining(
            _config(size, ours.discriminator.config, "ElectraForPreTraining", vocab_size)
        )
        for network, state in (
            (self.generator, generator_state_dict(ours)),
            (self.discriminator, discriminator_state_dict(ours)),
        ):
            padded = {name: _padded(name, tensor, size.vocab_size, vocab_size) for name, tensor in state.items()}
            report = network.load_state_dict(padded, strict=False)
            absent = [name for name in report.missing_keys if name != "generator_lm_head.weight"]
            if absent or report.unexpected_keys:
                raise ValueError(f"weights must fit Transformers' names, got {absent} and {report.unexpected_keys}")
            network.tie_weights()
            network.set_attn_implementation(attention)
        self.discriminator.electra.embeddings = self.generator.electra.embeddings


class Theirs(Contender):
    """What both ways have in common: the loop, and masking as users write it."""

    def __init__(self, size: Size, settings: Settings, device: torch.device) -> None:
        self.size, self.settings, self.device = size, settings, device
        self.networks = Pair(size, settings.attention, self.vocab_size).to(device).train()
        self._batches = [batch.input_ids for batch in batches_of(size, device)]
        self._weight = ObjectiveConfig().discriminator_weight
        self._optimizer = self._make_optimizer()
        self._step = 0

    @property
    def vocab_size(self) -> int:
        return self.size.vocab_size

    @abstractmethod
    def losses(self, masked: Masked, corrupted_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """Of generator and discriminator; the generator's samples go in where no corrupted ids are given."""

    def _make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.networks.parameters(), lr=LEARNING_RATE)

    def step(self) -> None:
        masked = self._mask(self._batches[self._step % len(self._batches)])
        generator_loss, discriminator_loss = self.losses(masked, None)
        (generator_loss + self._weight * discriminator_loss).backward()
        nn.utils.clip_grad_norm_(self.networks.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._step += 1

    def answer(self) -> Answer:
        masked, corrupted = question(self.size, self.device)
        num_masked = self.size.masking.num_masked(self.size.length)
        given = Masked(masked.generator_input_ids, masked.original_ids, masked.masked_positions[:, :num_masked])
        self.networks.eval()
        num_padding = self.size.num_padding(self.vocab_size)
        answer = answered(self.networks, *self.losses(given, corrupted), self._weight, num_padding)
        self.networks.train()
        return answer

    def _mask(self, input_ids: Tensor) -> Masked:
        masking = self.size.masking
        is_special = (input_ids == SPECIAL.cls_id) | (input_ids == SPECIAL.sep_id)
        scores = torch.rand(input_ids.shape, device=self.device).masked_fill(is_special, -1.0)
        positions = scores.topk(masking.num_masked(self.size.length), dim=1).indices
        shows_mask = torch.rand(positions.shape, device=self.device) < masking.mask_token_fraction
        shown = input_ids.gather(1, positions).masked_fill(shows_mask, SPECIAL.mask_id)
        return Masked(input_ids.scatter(1, positions, shown), input_ids, positions)


class Naive(Theirs):
    """Float32, logits at all positions, Gumbel numbers for every vocabulary entry, everything at its default."""

    def losses(self, masked: Masked, corrupted_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        original = masked.original_ids
        attention_mask = torch.ones_like(original)
        is_masked = torch.zeros_like(original, dtype=torch.bool).scatter(1, masked.positions, True)
        generated = self.networks.generator(
            input_ids=masked.input_ids,
            attention_mask=attention_mask,
            token_type_ids=torch.zeros_like(original),
            labels=original.masked_fill(~is_masked, -100),
        )
        if corrupted_ids is None:
            with torch.no_grad():
                logits = generated.logits[is_masked]
                gumbel = -torch.log(-torch.log(torch.rand_like(logits)))
                corrupted_ids = original.clone()
                corrupted_ids[is_masked] = (logits + gumbel).argmax(dim=-1)
        judged = self.networks.discriminator(
            input_ids=corrupted_ids,
            attention_mask=attention_mask,
            token_type_ids=torch.zeros_like(original),
            labels=(corrupted_ids != original).long(),
        )
        return generated.loss, judged.loss


class Best(Theirs):
    """Logits at masked positions, one random number per sample, fused AdamW, a padded vocabulary, no needless mask."""

    def __init__(self, size: Size, settings: Settings, device: torch.device) -> None:
        super().__init__(size, settings, device)
        if settings.own_dropout:
            _replace_dropout(self.networks)
        self._compute: Callable[..., tuple[Tensor, Tensor]] = self._losses
        if settings.is_compiled:
            self._compute = torch.compile(self._losses)

    @property
    def vocab_size(self) -> int:
        return -(-self.size.vocab_size // 64) * 64

    def losses(self, masked: Masked, corrupted_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        with OnednnProducts(self.settings.uses_onednn):
            return self._compute(masked, corrupted_ids)

    def step(self) -> None:
        with OnednnProducts(self.settings.uses_onednn):  # for the backward pass too
            super().step()

    def answer(self) -> Answer:
        with OnednnProducts(self.settings.uses_onednn):
            return super().answer()

    def _make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.networks.parameters(), lr=LEARNING_RATE, fused=True)

    def _losses(self, masked: Masked, corrupted_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        generator, original = self.networks.generator, masked.original_ids
        rows, length = original.shape
        starts = torch.arange(0, rows * length, length, device=self.device)[:, None]
        with self._autocast():
            hidden = generator.electra(input_ids=masked.input_ids).last_hidden_state
            chosen = hidden.flatten(0, 1).index_select(0, (masked.positions + starts).flatten())
            logits = generator.generator_lm_head(generator.generator_predictions(chosen)).float()
        log_probabilities = F.log_softmax(logits, dim=-1)  # for the loss and for the samples
        generator_loss = F.nll_loss(log_probabilities, original.gather(1, masked.positions).flatten())
        if corrupted_ids is None:
            uniform = torch.rand(logits.shape[0], device=self.device)
            samples = sample(log_probabilities.detach().exp(), uniform)
            corrupted_ids = original.scatter(1, masked.positions, samples.view_as(masked.positions))
        with self._autocast():
            judged = self.networks.discriminator(input_ids=corrupted_ids).logits.float()
        return generator_loss, F.binary_cross_entropy_with_logits(judged, (corrupted_ids != original).float())

    def _autocast(self) -> torch.autocast:
        precision = self.settings.precision
        return torch.autocast(self.device.type, dtype=DTYPES[precision], enabled=precision == "bf16")


class OnednnProducts:
    """Whether float32 products on the CPU go through oneDNN, for a while: torch goes there if told bf16 would do."""

    def __init__(self, is_wanted: bool) -> None:
        self._is_wanted = is_wanted

    def __enter__(self) -> None:
        self._before = torch.backends.mkldnn.matmul.fp32_precision
        torch.backends.mkldnn.matmul.fp32_precision = "bf16" if self._is_wanted else "none"

    def __exit__(self, *_: object) -> None:
        torch.backends.mkldnn.matmul.fp32_precision = self._before


class ByteDropout(nn.Module):
    """Dropout by one random byte per element, eight from each number."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.p = probability

    def forward(self, x: Tensor) -> Tensor:
        return byte_dropout(x, self.p) if self.training else x


def byte_dropout(x: Tensor, probability: float) -> Tensor:
    kept = round(256 * (1 - probability))
    words = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    random_bytes = words.view(torch.uint8)[: x.numel()].view(x.shape)
    return (x * (random_bytes < kept)).mul_(256 / kept)


def _byte_dropout_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention by Transformers' interface: float[B, A, L, D] to [B, L, A, D]."""
    scores = torch.matmul(query * (scaling or query.shape[-1] ** -0.5), key.transpose(-1, -2))
    probabilities = torch.softmax(scores, dim=-1).to(value.dtype)
    if dropout > 0:
        probabilities = byte_dropout(probabilities, dropout)
    return torch.matmul(probabilities, value).transpose(1, 2).contiguous(), None


def _replace_dropout(networks: Pair) -> None:
    AttentionInterface.register("byte_dropout", _byte_dropout_attention)
    for network in (networks.generator, networks.discriminator):
        network.set_attn_implementation("byte_dropout")
    for module in list(networks.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(module, name, ByteDropout(child.p))


def _config(size: Size, encoder: object, architecture: str, vocab_size: int) -> ElectraConfig:
    config = transformers_config(encoder, SPECIAL, architecture)
    return ElectraConfig.from_dict(config | {"vocab_size": vocab_size})


def _padded(name: str, tensor: Tensor, vocab_size: int, rows: int) -> Tensor:
    missing = rows - vocab_size
    if name.endswith("word_embeddings.weight"):
        return F.pad(tensor, (0, 0, 0, missing))
    if name == "generator_lm_head.bias":
        return F.pad(tensor, (0, missing), value=_NEVER)
    return tensor
