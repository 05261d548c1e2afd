"""Import before Ray, which reads its environment when it is imported: no telemetry, a token of this run alone."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
from pathlib import Path

_OURS = "ELECTRA_BENCHMARK_SCRATCH"
if _OURS not in os.environ:  # a contender's process has it of this one, and would leave another behind
    SCRATCH = Path(tempfile.mkdtemp(prefix="electra-bench-"))
    """Gone when this process ends."""
    os.environ[_OURS] = str(SCRATCH)
    atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)
    (SCRATCH / "token").write_text(secrets.token_hex(32))
    (SCRATCH / "token").chmod(0o600)
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(SCRATCH / "token")
os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_AUTH_MODE="token",
    RAY_TRAIN_ENABLE_PRINT_PATCH="0",
    RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="1",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    MLFLOW_DISABLE_TELEMETRY="true",
    HF_HUB_OFFLINE="1",
)
os.environ.pop("RAY_ADDRESS", None)


def start_ray(num_cpus: int) -> None:
    """A cluster of this process's own."""
    import ray

    ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
