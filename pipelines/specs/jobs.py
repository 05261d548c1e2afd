"""All kinds of jobs."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.specs.evaluate import EvaluateSpec
from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.search import SearchSpec

JobSpec = PretrainSpec | FinetuneSpec | EvaluateSpec | SearchSpec
"""Any job; `kind` tells which."""

SPECS: Mapping[str, type[PretrainSpec | FinetuneSpec | EvaluateSpec | SearchSpec]] = {
    "pretrain": PretrainSpec,
    "finetune": FinetuneSpec,
    "evaluate": EvaluateSpec,
    "search": SearchSpec,
}
"""By `kind`."""

ID_PREFIXES: Mapping[str, str] = {"pretrain": "pt", "finetune": "ft", "evaluate": "ev", "search": "se"}
"""What ids of jobs begin with, by `kind`."""
