"""What a pretrained network has places for."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from finetuning_world import base_model

from pipelines.errors import DataError
from pipelines.specs.task import GlueTask


@pytest.mark.parametrize(("name", "is_refused"), [("SST-2", False), ("MRPC", True)])
def test_a_network_of_one_token_type_reads_no_pairs(tmp_path: Path, name: str, is_refused: bool) -> None:
    """Rather told before any data is read than as an index out of range in the first step."""
    base = base_model(tmp_path)
    of_one = replace(base, encoder=base.encoder.model_copy(update={"type_vocab_size": 1}))
    task = GlueTask.model_validate({"name": name, "uri": str(tmp_path)})
    with pytest.raises(DataError, match="must have two token types") if is_refused else nullcontext():
        of_one.check_reads(name, task, 64)
