"""What a job holds of the cluster while it runs. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Demand(BaseModel):
    """Equal workers that a job starts together. Its driver asks Ray for no CPU."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    num_workers: Annotated[int, Field(ge=1)] = 1
    """Side by side, at most."""
    cpus_per_worker: Annotated[float, Field(gt=0)] = 1.0
    gpus_per_worker: Annotated[int, Field(ge=0)] = 0
    group_workers: Annotated[int, Field(ge=1)] = 1
    """It makes do with any number of groups of so many. Of a search, whose trials wait for each other, the workers of
    one trial; of any other job all of them."""

    @property
    def num_cpus(self) -> float:
        """CPUs of all workers."""
        return self.num_workers * self.cpus_per_worker

    @property
    def num_gpus(self) -> int:
        """GPUs of all workers."""
        return self.num_workers * self.gpus_per_worker

    def within(self, num_slots: int) -> Demand | None:
        """The same on a cluster that has room for so many workers; None if that is too few."""
        if self.num_workers <= num_slots:
            return self
        workers = num_slots // self.group_workers * self.group_workers
        return self.model_copy(update={"num_workers": workers}) if workers else None
