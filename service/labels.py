"""Labels of jobs: names and values with the syntax and the lengths of Kubernetes' labels. Pure.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

MAX_LABELS = 32
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*")
_MAX_PREFIX = 253
_RULE = "1 to 63 letters, digits, '-', '_' and '.', with a letter or a digit at both ends"


def check_label(key: str, value: str) -> None:
    """Whether a label is one.

    Raises:
        ValueError: key or value breaks a rule.
    """
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _MAX_PREFIX or not _PREFIX.fullmatch(prefix)):
        raise ValueError(f"the part of a label's key before '/' must be a DNS name, got {key[:100]!r}")
    if not _NAME.fullmatch(name):
        raise ValueError(f"a label's key must be {_RULE}, after an optional 'domain/', got {key[:100]!r}")
    if value and not _NAME.fullmatch(value):
        raise ValueError(f"a label's value must be empty or {_RULE}, got {value[:100]!r}")


def read_label(text: str) -> tuple[str, str]:
    """Key and value of `key=value`.

    Raises:
        ValueError: it is no such thing, or breaks a rule.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"a label must be key=value, got {text[:100]!r}")
    check_label(key, value)
    return key, value


def _check_all(labels: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in labels.items():
        check_label(key, value)
    return labels


def _check_text(text: str) -> str:
    read_label(text)
    return text


Labels = Annotated[dict[str, str], Field(max_length=MAX_LABELS), AfterValidator(_check_all)]
LabelText = Annotated[str, Field(max_length=400), AfterValidator(_check_text)]
"""`key=value`."""
