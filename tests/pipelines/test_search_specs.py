"""Documents of searches, as people write them."""

from __future__ import annotations

import pytest

from pipelines.specs.parsing import dump_spec, load_spec
from pipelines.specs.search import SearchSpec
from pipelines.specs.spec_errors import SpecError

SEARCH = """
kind: search
base: {preset: tiny}
objective: {type: fixed_corruption}
budget: {flops: 1e+12}
"""


def loaded(text: str, *overrides: str) -> SearchSpec:
    spec = load_spec(SEARCH + text, overrides)
    assert isinstance(spec, SearchSpec)
    return spec


def test_a_preset_gives_the_space_and_the_document_has_the_last_word() -> None:
    assert set(loaded("preset: lambda").space) == {"objective.discriminator_weight"}
    own = loaded(
        "preset: lambda-and-generator-size\nspace: {model.generator_size_ratio: {type: choice, values: [0.5, 1]}}"
    )
    assert own.space["model.generator_size_ratio"].values == (0.5, 1)
    assert "objective.discriminator_weight" in own.space


def test_learning_rates_are_those_the_base_has() -> None:
    rates = {"optimizer.learning_rate", "optimizer.embedding_learning_rate"}
    assert set(loaded("preset: learning-rates").space) == rates | {"optimizer.muon_learning_rate"}
    adam = loaded("preset: learning-rates", "base.optimizer.name=adamw")
    assert set(adam.space) == rates


def test_a_resolved_search_is_read_as_it_was_written() -> None:
    spec = loaded("preset: lambda")
    assert load_spec(dump_spec(spec)) == spec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("preset: everything", "preset: must be one of generator-size, lambda"),
        ("space: {model.hidden_size: {type: choice, values: [1]}}", "space.model.hidden_size.values: "),
        ("preset: lambda\nscheduler: {type: asha, reduction_factor: 1}", "scheduler.reduction_factor: "),
        ("preset: lambda\nnum_trials: 0", "num_trials: "),
        ("preset: lambda\nspace: 3", "space: "),
        ("preset: lambda\nbase: {preset: tiny, modle: {}}", "base.modle: is not a field here (got {}); did you mean"),
        ("", "space: must be given"),
    ],
)
def test_the_field_that_is_wrong_is_named(text: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(SEARCH.replace("base: {preset: tiny}\n", "") + text if "base:" in text else SEARCH + text)
    assert str(caught.value).startswith(expected)
