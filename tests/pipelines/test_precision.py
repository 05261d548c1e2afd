from __future__ import annotations

import pytest
import torch

from pipelines.specs.parsing import resolve_spec
from pipelines.specs.spec_errors import SpecError
from pipelines.training import precision
from pipelines.training.precision import autocast, computed_in, muon_products_dtype

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("GenuineIntel", {"avx512f", "avx512_bf16", "amx_bf16", "amx_tile"}, "bf16"),
        ("GenuineIntel", {"avx512f", "avx512_bf16"}, "fp32"),
        ("AuthenticAMD", {"avx512f", "avx512_bf16"}, "bf16"),
        ("AuthenticAMD", {"avx2"}, "fp32"),
        ("", set(), "fp32"),
    ],
)
def test_auto_goes_by_the_processor(
    monkeypatch: pytest.MonkeyPatch, vendor: str, flags: set[str], expected: str
) -> None:
    monkeypatch.setattr(precision, "processor", lambda: (vendor, frozenset(flags)))
    assert computed_in("auto", CPU) == expected
    assert (computed_in("fp32", CPU), computed_in("bf16", CPU)) == ("fp32", "bf16")


@pytest.mark.parametrize(
    ("wanted", "flags", "expected"),
    [
        ("auto", {"amx_bf16"}, torch.bfloat16),
        ("fp32", {"amx_bf16"}, torch.float32),
        ("bf16", {"avx512_bf16"}, torch.float32),
    ],
)
def test_muon_multiplies_in_bf16_where_there_are_units_for_it(
    monkeypatch: pytest.MonkeyPatch, wanted: precision.Precision, flags: set[str], expected: torch.dtype
) -> None:
    monkeypatch.setattr(precision, "processor", lambda: ("GenuineIntel", frozenset(flags)))
    assert muon_products_dtype(wanted, CPU) == expected


@pytest.mark.parametrize("wanted", ["auto", "fp32", "bf16"])
def test_products_come_out_in_it(wanted: precision.Precision) -> None:
    with autocast(wanted, CPU):
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == {"fp32": torch.float32, "bf16": torch.bfloat16}[computed_in(wanted, CPU)]


def test_this_machines_processor_is_known_as_torch_knows_it() -> None:
    _, flags = precision.processor()
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        assert "avx512f" in flags


def test_another_word_is_refused() -> None:
    with pytest.raises(SpecError, match="precision"):
        resolve_spec({"kind": "pretrain", "preset": "tiny", "training": {"precision": "fp16"}})
