"""What every file is that one program writes and another reads."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """A file that another version of this software may have written: unknown keys are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True, protected_namespaces=())
