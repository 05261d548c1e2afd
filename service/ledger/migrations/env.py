"""How Alembic reaches the database: through the connection that `service.ledger.database.upgrade_database` hands it."""

from __future__ import annotations

from alembic import context

from service.ledger import feed_tables, queue_tables, usage_tables, webhook_tables  # noqa: F401 - more tables of Base
from service.ledger.tables import Base

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("Migrations run when the service starts; see service.ledger.database.upgrade_database.")
# Batch mode: SQLite changes a column only by copying its table.
context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
