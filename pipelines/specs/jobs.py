"""All kinds of jobs."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.specs.evaluate import EvaluateSpec
from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.pretrain import PretrainSpec

JobSpec = PretrainSpec | FinetuneSpec | EvaluateSpec
"""Any job; `kind` tells which."""

SPECS: Mapping[str, type[PretrainSpec | FinetuneSpec | EvaluateSpec]] = {
    "pretrain": PretrainSpec,
    "finetune": FinetuneSpec,
    "evaluate": EvaluateSpec,
}
"""By `kind`."""

ID_PREFIXES: Mapping[str, str] = {"pretrain": "pt", "finetune": "ft", "evaluate": "ev"}
"""What ids of jobs begin with, by `kind`."""
