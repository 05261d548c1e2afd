"""What the shell offers on the tab key. It asks once and briefly: whoever presses it waits, and wants no error."""

from __future__ import annotations

import os

import typer

from service.cli.inputs import running_stack
from service.client import ElectraClient

TIMEOUT_SECONDS = 1.0
_OFFERED = 50


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of the newest jobs that begin so, with their names and states; none where no service answers."""
    try:
        state = running_stack()
        url = context.params.get("url") or os.environ.get("ELECTRA_URL") or (state.service_url if state else None)
        if url is None:
            return []
        with ElectraClient(url, timeout_seconds=TIMEOUT_SECONDS, num_repeats=0) as client:
            page = client.jobs(limit=_OFFERED)
    except Exception:  # noqa: BLE001 - nothing that goes wrong may stand on the line that is being written
        return []
    return [(job.job_id, f"{job.name}, {job.state}") for job in page.items if job.job_id.startswith(incomplete)]
