"""What matrix products compute in: as the spec says or, where it leaves that open, the faster of the two.

Measured on one core, a step of 16 rows of 128 tokens in bf16 takes, of its time in fp32: 0.64 on an AMD EPYC (Zen 4),
whose AVX-512 multiplies pairs of bf16 at full rate; 1.45 on an Intel Xeon of the fifth generation whose AMX is hidden
by the hypervisor, where the same instructions run at half the rate; and with two threads 15 on an AMD EPYC with AVX2
alone (Zen 3), which has no such instructions (the preset `tiny`).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch

from pipelines.specs.compute import Precision


def computed_in(wanted: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """The precision on a device. It depends on the spec and the device's kind, never on a timing."""
    if wanted != "auto":
        return wanted
    return "bf16" if is_bf16_faster(device) else "fp32"


def autocast(wanted: Precision, device: torch.device) -> torch.autocast:
    """A context in which matrix products compute so."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=computed_in(wanted, device) == "bf16")


def is_bf16_faster(device: torch.device) -> bool:
    """Whether the device has instructions for bf16 that are faster than those for fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    vendor, flags = processor()
    return "amx_bf16" in flags or (vendor == "AuthenticAMD" and "avx512_bf16" in flags)


def muon_products_dtype(wanted: Precision, device: torch.device) -> torch.dtype:
    """What Muon multiplies in: bf16 where a device has units for matrices of it, unless a CPU is to compute in fp32.

    On one core of an Intel Xeon with AMX it takes a fifth of the time of fp32 for twelve matrices of 192 × 192, and a
    third for six of 192 × 768. Without AMX bf16 gains less than what `_iterate_gram`, which needs fp32, saves.
    """
    if device.type == "cuda":
        return torch.bfloat16
    has_units = device.type == "cpu" and "amx_bf16" in processor()[1]
    return torch.bfloat16 if has_units and computed_in(wanted, device) == "bf16" else torch.float32


@lru_cache(maxsize=1)
def processor() -> tuple[str, frozenset[str]]:
    """Maker and features of this machine's processor, as Linux names them; nothing where it is not Linux on x86."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", frozenset()
    said: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        said.setdefault(key.strip(), value.strip())
    return said.get("vendor_id", ""), frozenset(said.get("flags", "").split())
