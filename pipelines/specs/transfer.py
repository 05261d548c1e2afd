"""From the winner of a search on a small network to a spec for a larger preset, with the rule behind each field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from pipelines.specs.presets import PRESETS
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.resolving import merge, resolve_pretraining
from pipelines.specs.search import SearchSpec
from pipelines.specs.space import Point
from pipelines.specs.trials import nested

_SIZES = ("hidden_size", "embedding_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_ADAM_RATE, _MUON_RATE = "optimizer.learning_rate", "optimizer.muon_learning_rate"
_EMBEDDING_RATE = "optimizer.embedding_learning_rate"
_TRANSFERRED = ("model", "objective", "masking", "optimizer")


@dataclass(frozen=True)
class TransferredField:
    """One field of the larger spec."""

    path: str
    value: Any
    """None where the field is left to the preset."""
    rule: str


def transfer(search: SearchSpec, winner: PretrainSpec, point: Point) -> tuple[dict[str, Any], list[TransferredField]]:
    """The document for `search.transfer_to`, and where its fields come from.

    What the search chose and what its base says of networks, objective, mask and optimizer is taken over; steps,
    batches and workers are the preset's.

    Args:
        search: with a preset to transfer to.
        winner: the winning trial's spec.
        point: its values by path; empty for the base.

    Raises:
        SpecError: what comes out breaks a rule of pretraining specs.
    """
    assert search.transfer_to is not None
    target = PRESETS[search.transfer_to]()
    paths = dict.fromkeys([*_written(search.base), *point])
    if {_ADAM_RATE, _MUON_RATE, _EMBEDDING_RATE} & paths.keys():
        # A learning rate means nothing without its optimizer, which may have others, each with a rule of its own.
        paths |= dict.fromkeys(["optimizer.name", _ADAM_RATE, _EMBEDDING_RATE])
        if winner.optimizer.name == "muon":
            paths[_MUON_RATE] = None
    fields = [_transferred(path, winner, target) for path in sorted(paths)]
    document: dict[str, Any] = {
        "kind": "pretrain",
        "preset": search.transfer_to,
        "name": f"{search.name}-{search.transfer_to}",
        **{section: search.base[section] for section in ("corpus", "tokenizer") if section in search.base},
    }
    document = merge(document, nested({one.path: one.value for one in fields if one.value is not None}))
    resolve_pretraining(document)
    return document, fields


def transfer_text(document: Mapping[str, Any], fields: list[TransferredField]) -> str:
    """The document as YAML, with the rule of each field as a comment above."""
    rules = "".join(
        f"#   {one.path}: {'left to the preset' if one.value is None else json.dumps(one.value)}; {one.rule}\n"
        for one in fields
    )
    return (
        "# Written by a search, for a larger preset. Where each field comes from:\n"
        f"{rules}"
        "# Everything else is the preset's: steps, batches, sizes. A learning rate that is scaled is a start and no\n"
        "# proof: a few short runs around it are well spent.\n"
        + yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=110)
    )


def _written(base: Mapping[str, Any]) -> list[str]:
    """Paths of the fields that the base itself gives, in the sections that are taken over."""
    return [
        f"{section}.{name}"
        for section in _TRANSFERRED
        if isinstance(base.get(section), Mapping)
        for name in base[section]
    ]


def _transferred(path: str, winner: PretrainSpec, target: PretrainSpec) -> TransferredField:
    section, _, name = path.partition(".")
    value = winner.model_dump(mode="json")[section][name]
    if path in (_ADAM_RATE, _MUON_RATE):
        return _learning_rate(path, winner, target)
    if path == _EMBEDDING_RATE:
        return _embedding_rate(winner, target)
    if path == "model.initializer_range":
        return TransferredField(path, None, "weights start the narrower the wider the network is")
    if path == "optimizer.warmup_steps":
        share = value / winner.training.num_train_steps
        return TransferredField(
            path, round(share * target.training.num_train_steps), f"the same share of the steps, {100 * share:.3g} %"
        )
    if path == "model.generator_num_hidden_layers" and value is not None:
        share = value / winner.model.num_hidden_layers
        layers = max(1, round(share * target.model.num_hidden_layers))
        return TransferredField(path, layers, f"the same share of the discriminator's layers, {100 * share:.3g} %")
    if section not in _TRANSFERRED:
        return TransferredField(path, None, "steps and batches are those of the size")
    if section == "model" and (name in _SIZES or name == "max_position_embeddings"):
        return TransferredField(path, None, "a size")
    kept = "the generator's share of the discriminator's width is kept" if name == "generator_size_ratio" else "kept"
    return TransferredField(path, value, kept)


def _embedding_rate(winner: PretrainSpec, target: PretrainSpec) -> TransferredField:
    """Scaled with what rows of words start as: a step then moves them by the same share, whatever the width.

    A row is looked up and not multiplied: its rate need not fall as the width grows (arXiv:2203.03466, table 8).
    """
    value = winner.optimizer.embedding_learning_rate
    if value is None:
        return TransferredField(_EMBEDDING_RATE, None, "the winner has none of its own")
    start, wanted = winner.model.initializer_range, target.model.initializer_range
    rule = f"{value:.4g} × {wanted:g} / {start:g}: the same share of what rows start as (initializer_range)"
    return TransferredField(_EMBEDDING_RATE, float(f"{value * wanted / start:.4g}"), rule)


def _learning_rate(path: str, winner: PretrainSpec, target: PretrainSpec) -> TransferredField:
    """Scaled so that an update moves what a layer gives by as much in the wider network.

    That is so where the largest singular value of the update stays as it is, for layers whose sides grow alike (Yang,
    Simon and Bernstein 2023, arXiv:2310.17813). Adam's updates have elements of about the rate whatever the width, all
    of one mind with the layer's input: their singular value grows as the width does, and the rate falls by as much.
    Muon's are orthogonal, times 0.2 √width so that elements are as large as Adam's: their singular value grows as the
    root of the width does.
    """
    width, wider = winner.model.hidden_size, target.model.hidden_size
    if path == _ADAM_RATE:
        value, factor = winner.optimizer.learning_rate, width / wider
        rule = f"{width} / {wider}: Adam's rate falls as the width grows (arXiv:2203.03466)"
    elif winner.optimizer.name == "muon":
        # Without a rate of its own Muon has Adam's.
        value, factor = winner.optimizer.muon_learning_rate or winner.optimizer.learning_rate, (width / wider) ** 0.5
        rule = f"√({width} / {wider}): Muon's update is orthogonal × √width, so its rate falls as the root of the width"
    else:
        return TransferredField(path, None, "the winner has none")
    return TransferredField(path, float(f"{value * factor:.4g}"), f"{value:.4g} × {rule}")
