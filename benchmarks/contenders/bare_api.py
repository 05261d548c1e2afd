"""What the service is held against: FastAPI, one table, an insert and selects, and nothing else that a service needs.

No users, no events, no audit log, no keys of idempotency, no metrics, and a spec is any object.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query
from pydantic import BaseModel
from sqlalchemy import Column, DateTime, Index, MetaData, String, Table, Text, create_engine, insert, select, tuple_

TABLE = Table(
    "bare_jobs",
    MetaData(),
    Column("job_id", String(63), primary_key=True),
    *(Column(name, String(200), nullable=False) for name in ("name", "kind", "state", "project", "owner")),
    Column("created_at", DateTime, nullable=False),
    Column("spec_json", Text, nullable=False),
    *(Column(name, Text) for name in ("progress", "result")),
    Index("ix_bare_created", "created_at", "job_id"),
    Index("ix_bare_state", "state", "created_at", "job_id"),
)
_SHOWN = [column for column in TABLE.columns if column.name != "spec_json"]


class NewJob(BaseModel):
    spec: dict[str, Any]


class BareJob(BaseModel):
    job_id: str
    name: str
    kind: str
    state: str
    project: str
    owner: str
    created_at: datetime
    progress: dict[str, Any] | None
    result: dict[str, Any] | None


class BareDetail(BareJob):
    spec: dict[str, Any]


class BarePage(BaseModel):
    items: list[BareJob]
    next_cursor: str | None


app = FastAPI()
_engine = create_engine(os.environ.get("BARE_DATABASE_URL", "sqlite://"))


@app.get("/readyz")
def ready() -> dict[str, str]:
    with _engine.connect() as connection:
        connection.execute(select(TABLE.c.job_id).limit(1))
    return {"status": "ok"}


@app.post("/v1/jobs", status_code=202)
def create_job(body: NewJob) -> BareJob:
    row = {
        "job_id": f"pt-{time.time_ns() // 1_000_000:012x}{secrets.token_hex(5)}",
        "name": str(body.spec.get("name", "")),
        "kind": "pretrain",
        "state": "QUEUED",
        "project": "default",
        "owner": "local",
        "created_at": datetime.now(UTC).replace(tzinfo=None),
        "spec_json": json.dumps(body.spec),
    }
    with _engine.begin() as connection:
        connection.execute(insert(TABLE), row)
    return BareJob(**row, progress=None, result=None)


@app.get("/v1/jobs")
def list_jobs(
    limit: Annotated[int, Query(ge=1, le=200)] = 50, cursor: str | None = None, state: str | None = None
) -> BarePage:
    query = select(*_SHOWN).order_by(TABLE.c.created_at.desc(), TABLE.c.job_id.desc()).limit(limit + 1)
    if state is not None:
        query = query.where(TABLE.c.state == state)
    if cursor is not None:
        at, _, job_id = cursor.partition("_")
        query = query.where(tuple_(TABLE.c.created_at, TABLE.c.job_id) < (datetime.fromisoformat(at), job_id))
    with _engine.connect() as connection:
        rows = connection.execute(query).mappings().all()
    jobs = [BareJob(**_read(row)) for row in rows[:limit]]
    last = jobs[-1] if len(rows) > limit else None
    return BarePage(items=jobs, next_cursor=f"{last.created_at.isoformat()}_{last.job_id}" if last else None)


@app.get("/v1/jobs/{job_id}")
def get_job(job_id: str) -> BareDetail:
    with _engine.connect() as connection:
        row = connection.execute(select(TABLE).where(TABLE.c.job_id == job_id)).mappings().first()
    if row is None:
        raise HTTPException(404)
    return BareDetail(**_read(row), spec=json.loads(row["spec_json"]))


def _read(row: Any) -> dict[str, Any]:
    return {**row, **{name: json.loads(row[name]) if row[name] else None for name in ("progress", "result")}}
