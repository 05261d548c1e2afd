"""Aliases of models that were looked up when a job was taken."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("resolved_aliases", sa.Text))


def downgrade() -> None:
    op.drop_column("jobs", "resolved_aliases")
