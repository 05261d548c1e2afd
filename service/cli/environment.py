"""Settings of the service, for the commands that run where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.cli.console import InputError

if TYPE_CHECKING:
    from service.settings import Settings


def read_settings() -> Settings:
    """The settings of `ELECTRA_*` variables.

    Raises:
        InputError: one of them is malformed; the message names the variable, and never repeats a database's URL.
    """
    from pydantic import ValidationError

    from service.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False):
            if item["type"] == "default_factory_not_called":
                continue  # it hangs on another setting, which is the one that is wrong
            variable = "ELECTRA_" + "_".join(str(part) for part in item["loc"]).upper()
            lines.append(f"{variable}: {item['msg'].removeprefix('Value error, ')}")
        raise InputError("\n".join(lines)) from error
