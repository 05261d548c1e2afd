"""Environment of every test: no telemetry, no usage statistics, one thread, nothing written to the home folder."""

from __future__ import annotations

import os

os.environ.update(
    MLFLOW_DISABLE_TELEMETRY="true",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_TRAIN_ENABLE_PRINT_PATCH="0",
    RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.2",
    TOKENIZERS_PARALLELISM="false",
)
