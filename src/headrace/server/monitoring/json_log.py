"""The log of a serving process as lines of JSON on its standard error: epochs that failed, warnings and faults."""

from __future__ import annotations

import json
import logging
from typing import Any, Final, TextIO

from headrace.observation import EpochFailure
from headrace.time import Clock, render_instant

_LOG: Final = logging.getLogger("headrace")


class JsonLines(logging.Formatter):
    """A line for each record: when, level, logger, message, the fields of `extra={"facts": …}`, and the stack trace of a fault."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, Any] = {
            **getattr(record, "facts", {}),
            "at": render_instant(self._clock()),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_as_json(stream: TextIO, clock: Clock) -> None:
    """Write the log of this process to a stream as lines of JSON."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(clock))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    _LOG.setLevel(logging.INFO)
    logging.captureWarnings(capture=True)


def log_failure(failure: EpochFailure) -> None:
    """An attempt at an epoch failed."""
    _LOG.warning("epoch %d failed: %s", failure.epoch, failure.message, extra={"facts": failure.as_dict()})
