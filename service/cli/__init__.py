"""The `electra` command.

Each module holds a few commands; what they share is in `console` (output, errors, exit codes), `inputs` (specs and
addresses) and `render` (tables). Heavy imports stand inside the commands that need them: `electra --help` is quick.
"""

from service.cli.app import app

__all__ = ["app"]
