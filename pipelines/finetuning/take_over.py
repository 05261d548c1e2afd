"""What a finetuning job takes over of the job it is a retry of: the runs that were finished."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pipelines import storage
from pipelines.finetuning.seed_task import RESULT_FILE, WEIGHTS_FILE, SeedResult, SeedTask
from pipelines.job import JobDirectory
from pipelines.origin import origins, take_over_folder

log = logging.getLogger(__name__)


def take_over_runs(runs: Sequence[SeedTask], directory: JobDirectory) -> list[SeedTask]:
    """Copy what the job's origins have finished of the same spec, data and base model.

    Returns:
        The runs that were taken over; the others start over.

    Raises:
        StorageError: the storage does not answer.
    """
    taken = []
    for origin in origins(directory):
        for run in runs:
            place = ("seeds", run.prepared.name, str(run.seed))
            finished = SeedResult.find(origin.path(*place), run.identity)
            # A job that got as far as its record has deleted the weights of all but the best seeds.
            if finished is None or not storage.exists(origin.path(*place, WEIGHTS_FILE)):
                continue
            if SeedResult.find(run.uri, run.identity) is None:
                take_over_folder(directory, origin, *place, last=RESULT_FILE)
                log.info("run_taken_over", extra={"run": run.name, "job_id": origin.job_id})
                taken.append(run)
    return taken
