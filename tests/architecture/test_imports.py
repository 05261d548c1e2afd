"""What an import brings with it: the service's image and a laptop's command line carry no torch, no Ray, no MLflow."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "ray", "mlflow", "transformers", "tokenizers")
SERVICE = ("fastapi", "sqlalchemy", "alembic")


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("service.app", HEAVY),
        ("service.wiring", HEAVY),
        ("service.cli", (*HEAVY, *SERVICE)),
        ("service.cli.app", (*HEAVY, *SERVICE)),
        ("service.client", (*HEAVY, *SERVICE)),
        ("service.http.schemas", (*HEAVY, *SERVICE)),
        ("pipelines.specs.plan", (*HEAVY, *SERVICE, "pyarrow")),
        ("electra_core", (*HEAVY, "pydantic")),
        ("pipelines", (*HEAVY, "pydantic")),
    ],
)
def test_importing_stays_light(module: str, absent: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print(*sorted(sys.modules.keys() & {set(absent)!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
