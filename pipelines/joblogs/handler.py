"""Where the standard library's logging meets a `LogKeeper`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.joblogs.keeper import LogKeeper

_OURS = ("pipelines", "electra_core")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_traces = logging.Formatter()


class KeptLogHandler(logging.Handler):
    """Gives every record to a keeper: its words, its extra fields and its traceback."""

    def __init__(self, keeper: LogKeeper, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._keeper = keeper

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record; never raises."""
        try:
            fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
            message = record.getMessage()
            if record.exc_info and record.exc_info[0] is not None:
                message = f"{message}\n{_traces.formatException(record.exc_info)}"
        except Exception:  # noqa: BLE001 - arguments that do not fit their format
            message, fields = f"{record.msg!r}", {}
        self._keeper.add(_level(record.levelno), record.name, message, fields, record.created)


@contextmanager
def logging_to(keeper: LogKeeper) -> Iterator[None]:
    """Our log from `info` on and everybody's warnings go to a keeper too, until the block ends."""
    ours, root = logging.getLogger("pipelines"), logging.getLogger()
    handler, others = KeptLogHandler(keeper), KeptLogHandler(keeper, logging.WARNING)
    others.addFilter(lambda record: record.name.partition(".")[0] not in _OURS)
    attached: list[tuple[logging.Logger, logging.Handler]] = [
        (ours, handler),
        (logging.getLogger("electra_core"), handler),
        (root, others),
    ]
    if not root.handlers:
        # Of a logger without handlers Python prints warnings by itself, and must go on to.
        printing = logging.StreamHandler(sys.stderr)
        printing.setLevel(logging.WARNING)
        attached.append((root, printing))
    for logger, one in attached:
        logger.addHandler(one)
    try:
        yield
    finally:
        for logger, one in attached:
            logger.removeHandler(one)


def _level(number: int) -> str:
    for name, least in (("critical", 50), ("error", 40), ("warning", 30), ("info", 20)):
        if number >= least:
            return name
    return "debug"
