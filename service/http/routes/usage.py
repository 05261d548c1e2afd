"""`/v1/usage`: what jobs took of the cluster."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from service.access.principals import Permission
from service.errors import Fault, InvalidRequestError
from service.http.authorisation import CallerDep
from service.http.desk import ShelfDep
from service.http.problems import problems
from service.http.shelf_schemas import UsageQuery, UsageReport, UsageRow
from service.shelf.usage import TooMuchUsedError, add_up_all

router = APIRouter(prefix="/v1", tags=["usage"])

DEFAULT_WINDOW = timedelta(days=30)
MAX_WINDOW = timedelta(days=3660)
FIGURES = ("cpu_hours", "gpu_hours", "flops", "tokens", "jobs", "attempts")
_CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}


@router.get("/usage", response_model=UsageReport, responses={**problems(), **_CSV})
def get_usage(query: Annotated[UsageQuery, Query()], shelf: ShelfDep, caller: CallerDep) -> Response | UsageReport:
    """CPU-hours, GPU-hours, FLOPs and tokens of the projects that the principal sees, as JSON or CSV."""
    assert caller.principal is not None
    visible = caller.principal.projects_with(Permission.JOBS_READ)
    if query.project is not None:
        visible = frozenset({query.project}) if visible is None else visible & {query.project}
    now = datetime.now(UTC)
    start, end = _window(query, now)
    by = tuple(dict.fromkeys(query.group_by))
    window = (_milliseconds(start), _milliseconds(end))
    try:
        found, whole = add_up_all(shelf.usage.used_attempts(*window, _milliseconds(now), visible), *window, by)
    except TooMuchUsedError as error:
        field, value = ("group_by", ", ".join(by)) if error.what == "groups" else ("from", str(query.from_))
        rule = f"must give {error.most} {error.what} at most: ask for a shorter window, or for fewer dimensions"
        raise InvalidRequestError(f"{field} {rule}.", [Fault(f"/query/{field}", rule, value)]) from error
    rows = [UsageRow.from_usage(one) for one in found]
    if query.format == "csv":
        return Response(_as_csv(by, rows), media_type="text/csv")
    total = UsageRow.from_usage(whole)
    return UsageReport(from_=start, to=end, group_by=by, rows=tuple(rows), total=total)


def _window(query: UsageQuery, now: datetime) -> tuple[datetime, datetime]:
    rule = f"from must be before to, by {MAX_WINDOW.days} days at most"
    try:
        end = now if query.to is None else _moment(query.to)
        start = end - DEFAULT_WINDOW if query.from_ is None else _moment(query.from_)
        is_window = timedelta(0) < end - start <= MAX_WINDOW
    except OverflowError:  # at the ends of what dates there are
        is_window = False
    if not is_window:
        raise InvalidRequestError(f"{rule}.", [Fault("/query/from", rule, str(query.from_))])
    return start, end


def _moment(given: datetime | date) -> datetime:
    return given.astimezone(UTC) if isinstance(given, datetime) else datetime.combine(given, time(), UTC)


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _as_csv(by: tuple[str, ...], rows: list[UsageRow]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([*by, *FIGURES])
    for row in rows:
        writer.writerow([*(row.group[name] for name in by), *(getattr(row, name) for name in FIGURES)])
    return text.getvalue()
