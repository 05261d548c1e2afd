"""What every program of ours finds around it: the Ray cluster it was started on, and MLflow."""

from __future__ import annotations

import logging
import os
import socket

import ray

from pipelines import storage

_HEAD_PATIENCE_SECONDS = 5.0


def connect_to_ray() -> None:
    """Join the cluster the program was submitted to; without one, start a small one in this process."""
    if not ray.is_initialized():
        ray.init(
            address=os.environ.get("RAY_ADDRESS"),
            log_to_driver=True,
            configure_logging=False,
            logging_level=logging.WARNING,
        )


def head_address() -> str | None:
    """Where the head of the cluster listens that the program has joined, as `host:port`; None without one."""
    return ray.get_runtime_context().gcs_address if ray.is_initialized() else None


def is_head_gone(address: str | None) -> bool:
    """Whether nobody listens any more where the head of the cluster did.

    Asked of the operating system: Ray itself waits a minute for its head before it says so.
    """
    if address is None:
        return False
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _HEAD_PATIENCE_SECONDS).close()
    except OSError:
        return True
    return False


def tracking_uri_of(storage_uri: str) -> str:
    """MLflow's server, or a database file beside the jobs where there is none.

    Raises:
        ValueError: there is none, and the jobs lie where no database file can.
    """
    given = os.environ.get("MLFLOW_TRACKING_URI")
    if given:
        return given
    local = storage.local_path(storage_uri)
    if local is None:
        raise ValueError(f"MLFLOW_TRACKING_URI must be set where the storage is not local, got {storage_uri}")
    local.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{local / 'mlflow.db'}"
