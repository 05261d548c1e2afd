"""From a winner on a small network to a spec for a larger one, and the rule behind each field."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pipelines.specs.parsing import resolve_spec
from pipelines.specs.resolving import resolve_pretraining
from pipelines.specs.search import SearchSpec
from pipelines.specs.space import Point
from pipelines.specs.transfer import TransferredField, transfer, transfer_text
from pipelines.specs.trials import trial_spec

RATE, MUON, RANGE = "optimizer.learning_rate", "optimizer.muon_learning_rate", "model.initializer_range"
WORDS = "optimizer.embedding_learning_rate"


def transferred(base: dict[str, Any], point: Point, to: str = "base") -> tuple[dict[str, Any], dict[str, Any]]:
    """The document, and its fields by path; of a search that has the point's paths, on the tiny preset, 128 wide."""
    space = {path: {"type": "choice", "values": [value, None]} for path, value in point.items()}
    rate = {RATE: {"type": "log_uniform", "low": 1e-4, "high": 1e-3}}
    document = {
        "kind": "search",
        "base": {"preset": "tiny", **base},
        "space": space or rate,
        "objective": {"type": "fixed_corruption"},
        "budget": {"steps": 1000},
        "transfer_to": to,
    }
    spec = resolve_spec(document)
    assert isinstance(spec, SearchSpec)
    made, fields = transfer(spec, trial_spec(spec, point), point)
    return made, {one.path: one for one in fields}


def test_adams_rate_falls_as_the_width_grows() -> None:
    document, fields = transferred({"optimizer": {"name": "adamw"}}, {RATE: 6e-4})
    assert document["optimizer"]["learning_rate"] == pytest.approx(6e-4 * 128 / 768)
    assert fields[RATE].rule.startswith("0.0006 × 128 / 768: Adam's rate")


@pytest.mark.parametrize(("to", "width"), [("small", 256), ("base", 768), ("large", 1024)])
def test_muons_rate_falls_as_the_root_of_the_width_grows(to: str, width: int) -> None:
    """Its update is orthogonal × 0.2 √width, whose largest singular value must stay as it is."""
    document, fields = transferred({}, {RATE: 6e-4, MUON: 2e-3}, to)
    assert document["optimizer"]["muon_learning_rate"] == pytest.approx(2e-3 * math.sqrt(128 / width), rel=1e-3)
    assert document["optimizer"]["learning_rate"] == pytest.approx(6e-4 * 128 / width, rel=1e-3)
    assert fields[MUON].rule.startswith(f"0.002 × √(128 / {width}): Muon's update is orthogonal")
    assert resolve_pretraining(document).optimizer.name == "muon"


def test_one_rate_for_adam_and_muon_becomes_two() -> None:
    """Where there is none of its own Muon has Adam's, and each falls by its own rule."""
    document, fields = transferred({"optimizer": {"name": "muon", "muon_learning_rate": None}}, {RATE: 6e-4})
    assert document["optimizer"]["muon_learning_rate"] == pytest.approx(6e-4 * math.sqrt(128 / 768), rel=1e-3)
    assert document["optimizer"]["learning_rate"] == pytest.approx(6e-4 * 128 / 768)
    assert fields[MUON].rule.startswith("0.0006 × √(128 / 768): ")


def test_the_rate_of_words_moves_them_by_the_same_share() -> None:
    document, fields = transferred({}, {WORDS: 8e-3})
    assert document["optimizer"]["embedding_learning_rate"] == pytest.approx(8e-3 * 0.02 / 0.08)
    assert fields[WORDS].rule.startswith("0.008 × 0.02 / 0.08: the same share")
    without, _ = transferred({"optimizer": {"embedding_learning_rate": None}}, {RATE: 6e-4})
    assert "embedding_learning_rate" not in without["optimizer"]


def test_adam_has_no_rate_of_muons() -> None:
    document, _ = transferred({"optimizer": {"name": "adamw"}}, {RATE: 6e-4})
    assert "muon_learning_rate" not in document["optimizer"]
    assert resolve_pretraining(document).optimizer.muon_learning_rate is None


@pytest.mark.parametrize("point", [{}, {RANGE: 0.05}])
def test_how_wide_weights_start_is_left_to_the_larger_preset(point: Point) -> None:
    """0.08 is for a width of 128."""
    document, fields = transferred({"model": {"initializer_range": 0.08}}, point)
    found = fields[RANGE]
    assert isinstance(found, TransferredField)
    assert (found.value, "model" in document) == (None, False)
    assert resolve_pretraining(document).model.initializer_range == 0.02
    line = next(one for one in transfer_text(document, [found]).splitlines() if RANGE in one)
    assert line == f"#   {RANGE}: left to the preset; weights start the narrower the wider the network is"


def test_what_has_no_size_is_kept() -> None:
    document, fields = transferred({"masking": {"mask_fraction": 0.2}}, {"objective.discriminator_weight": 20.0})
    assert document["objective"]["discriminator_weight"] == 20.0
    assert document["masking"]["mask_fraction"] == 0.2
    assert fields["masking.mask_fraction"].rule == "kept"
