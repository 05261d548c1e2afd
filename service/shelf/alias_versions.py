"""The version that an alias names now, for jobs that are taken."""

from __future__ import annotations

import structlog

from pipelines.specs.model_source import DEFAULT_ALIAS, RegisteredNetwork
from service.errors import RegistryUnavailableError
from service.shelf.registry import Registry

log = structlog.get_logger(__name__)


class AliasVersions:
    """Looks aliases up. No job is refused for want of an answer: it asks again itself, when it runs."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __call__(self, network: RegisteredNetwork) -> int | None:
        """The version; None where the registry knows no such alias, or does not answer."""
        try:
            model = self._registry.model(network.name)
        except RegistryUnavailableError as error:
            log.warning("alias_not_looked_up", model=network.name, reason=error.detail)
            return None
        return None if model is None else model.aliases.get(network.alias or DEFAULT_ALIAS)
