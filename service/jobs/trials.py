"""The trials of a search, as its job puts them down while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pipelines.specs.trial_documents import TrialList, TrialSummary, rank
from service.errors import NoTrialsError, TrialsUnavailableError
from service.http.schemas import TrialPage, TrialQuery
from service.interfaces import FolderError, JobFolders
from service.records import Job


class Trials:
    """Reads them from the job's folder: rows of the database would be copies that are out of date."""

    def __init__(self, folders: JobFolders) -> None:
        self._folders = folders

    def page(self, job: Job, query: TrialQuery) -> TrialPage:
        """Some trials of a job, sorted and filtered.

        Raises:
            NoTrialsError: the job is no search.
            TrialsUnavailableError: the storage does not answer.
        """
        if job.kind != "search":
            raise NoTrialsError(job.job_id, job.kind)
        try:
            found = self._folders.read_trials(job.job_id)
        except FolderError as error:
            raise TrialsUnavailableError(f"{error}. Try again in a moment.") from error
        if found is None:
            return TrialPage(items=(), total=0)
        chosen = [one for one in found.trials if not query.state or one.state in query.state]
        chosen = [one for one in chosen if query.is_final is None or one.is_final == query.is_final]
        ordered = _sorted(chosen, query, found)
        start = int(query.cursor or 0)
        page = ordered[start : start + query.limit]
        end = start + len(page)
        return TrialPage(
            items=tuple(page),
            total=len(ordered),
            metric=found.metric,
            mode=found.mode,
            next_cursor=str(end) if page and end < len(ordered) else None,
        )


def _sorted(trials: Sequence[TrialSummary], query: TrialQuery, found: TrialList) -> list[TrialSummary]:
    """By the field asked for. What has no score comes last, whichever way round; ties go by number."""
    if query.sort == "rank":
        ranked = sorted((one for one in trials if one.score is not None), key=lambda one: rank(one, found.mode))
        unscored = [one for one in trials if one.score is None]
        return (ranked[::-1] if query.order == "desc" else ranked) + unscored
    keys: dict[str, Callable[[TrialSummary], float]] = {
        "number": lambda one: one.number,
        "flops": lambda one: one.flops,
        "step": lambda one: one.step,
        "score": lambda one: math.nan if one.score is None else one.score,
    }
    key = keys[query.sort]
    is_descending = query.order == "desc"
    if query.order is None:  # the best score first, the least of all else
        is_descending = query.sort == "score" and found.mode == "max"
    known = [one for one in trials if not math.isnan(key(one))]
    unknown = [one for one in trials if math.isnan(key(one))]
    sign = -1.0 if is_descending else 1.0
    return sorted(known, key=lambda one: (sign * key(one), one.number)) + unknown
