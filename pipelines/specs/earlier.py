"""Resolved specs that an earlier version has stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_it_was(document: Mapping[str, Any]) -> dict[str, Any]:
    """A stored spec, with the fields it lacks as that version behaved. A resolved spec has every field there was, and
    a default of a later one would change what the job trains.
    """
    training = document.get("training")
    if document.get("kind") != "pretrain" or not isinstance(training, Mapping):
        return dict(document)
    return {**document, "training": {"two_segment_fraction": 0.0, **training}}
