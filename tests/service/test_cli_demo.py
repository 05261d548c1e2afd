"""What the demonstration says at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.specs.documents import JobResult, ModelVersion
from service.cli import demo


@pytest.mark.parametrize(
    ("network", "text"), [("discriminator", "a sentence of yours"), ("encoder", "a [MASK] of yours")]
)
def test_the_model_to_try_is_the_one_the_job_registered(network: Any, text: str) -> None:
    generator = ModelVersion(network="generator", name="g", version="1", alias="best", export_uri="/g")
    main = ModelVersion(network=network, name="m", version="3", alias="best", export_uri="/m")
    result = JobResult(state="SUCCEEDED", models=(generator, main))
    stack: Any = SimpleNamespace(home=Path("/my home"))
    commands = [command for command, _ in demo._next_commands(result, stack)]
    assert f"ELECTRA_HOME='/my home' electra predict m@best --text '{text}'" in commands
