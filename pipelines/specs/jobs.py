"""All kinds of jobs."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.pretrain import PretrainSpec

JobSpec = PretrainSpec | FinetuneSpec
"""Any job; `kind` tells which."""

SPECS: Mapping[str, type[PretrainSpec | FinetuneSpec]] = {"pretrain": PretrainSpec, "finetune": FinetuneSpec}
"""By `kind`."""

ID_PREFIXES: Mapping[str, str] = {"pretrain": "pt", "finetune": "ft"}
"""What ids of jobs begin with, by `kind`."""
