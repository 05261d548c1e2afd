"""Ray's names for attempts that the service found instead of starting them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("adopted_submissions", sa.Text))


def downgrade() -> None:
    op.drop_column("jobs", "adopted_submissions")
