"""The held-out figures of finished ablations side by side, as a Markdown table.

    python examples/ablations/figures.py [SERVICE_URL]

Takes the newest job of each name that a file in this folder gives. Without an address: the stack of `electra up`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from service.client import ElectraClient
from service.http.schemas import JobPublic
from service.local import default_home, read_state
from service.states import JobState

COLUMNS = {
    "generator accuracy": "generator_accuracy",
    "generator loss": "generator_loss",
    "MLM accuracy": "mlm_accuracy",
    "MLM loss": "mlm_loss",
    "replaced": "replaced_fraction",
    "discriminator loss": "discriminator_loss",
    "its floor": "discriminator_loss_floor",
    "AUC": "discriminator_auc",
    "F1": "discriminator_f1",
}


def table(client: ElectraClient) -> str:
    """Rows in the order of the files' names; what a job's objective does not have is a dash."""
    lines = ["| job | FLOPs | " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (1 + len(COLUMNS))]
    for path in sorted(Path(__file__).parent.glob("*.yaml")):
        name = yaml.safe_load(path.read_text(encoding="utf-8"))["name"]
        newest = next(client.iter_jobs((JobState.SUCCEEDED,), name=name), None)
        if newest is None:
            lines.append(f"| {name} | not run |" + " |" * len(COLUMNS))
        else:
            lines.append(f"| {name} | {_flops(client, newest)} | " + " | ".join(_figures(newest)) + " |")
    return "\n".join(lines)


def _flops(client: ElectraClient, job: JobPublic) -> str:
    return f"{client.plan(client.job(job.job_id).spec).total_flops:.2e}"


def _figures(job: JobPublic) -> list[str]:
    evaluation = job.result.evaluation if job.result else {}
    return [f"{evaluation[name]:.4f}" if name in evaluation else "–" for name in COLUMNS.values()]


def main() -> None:
    """Print the table of the service that is named, or runs here."""
    if len(sys.argv) > 1:
        url = sys.argv[1]
    else:
        state = read_state(default_home())
        if state is None:
            sys.exit("no stack runs here: start it with `electra up`, or name the service's address")
        url = state.service_url
    with ElectraClient(url) as client:
        print(table(client))


if __name__ == "__main__":
    main()
