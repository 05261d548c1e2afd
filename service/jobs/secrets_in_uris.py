"""Secrets go by reference: a URI that carries one is refused, for specs are stored, shown and recorded. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from service.errors import Fault, SecretInRequestError
from service.jobs.references import Reference

_PARAMETERS = re.compile(
    r"[?&;]((?:x-(?:amz|goog)-(?:signature|credential|security-token)|sig|signature|awsaccesskeyid|googleaccessid"
    r"|(?:access_?|auth_?|id_?|api_?|private_?|secret_?)?(?:token|key|secret)|password|passwd|pwd|credentials?))=",
    re.IGNORECASE,
)
REMEDY = "give credentials through the environment of the service and of the cluster"


def check_secrets(references: Iterable[Reference]) -> None:
    """Refuse URIs with a user's name, a password or the parameters of a signature. The value is not repeated.

    Raises:
        SecretInRequestError: with a fault for each.
    """
    faults = [Fault(f"/spec{one.pointer}", rule) for one in references if (rule := _carried(one.uri)) is not None]
    if faults:
        raise SecretInRequestError(f"{faults[0].rule[:1].upper()}{faults[0].rule[1:]}.", faults)


def _carried(uri: str) -> str | None:
    scheme, separator, rest = uri.partition("://")
    if not separator or "/" in scheme or scheme.lower() == "file":
        return None
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in unquote(authority):
        return f"must not carry a user's name or password: {REMEDY}"
    found = _PARAMETERS.search(unquote(rest))
    return None if found is None else f"must not carry {found[1]}: {REMEDY}"
