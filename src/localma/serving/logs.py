"""Logs of a service: one line of JSON per event, without inputs or credentials."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from localma._types import Json

ENCODER = json.JSONEncoder(separators=(",", ":"), default=str)
LOGGER = logging.getLogger("localma.serving")


class JsonLines(logging.Formatter):
    """Writes the fields of an event as a line of JSON.

    Examples
    --------
    >>> record = LOGGER.makeRecord(LOGGER.name, logging.INFO, "", 0, "ready", (), None)
    >>> record.created, record.fields = 0.0, {"model": "rent"}
    >>> JsonLines().format(record)
    '{"time":"1970-01-01T00:00:00.000Z","level":"info","event":"ready","model":"rent"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write one line."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Json] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            # Only the type: a message could quote a row.
            line["error_type"] = record.exc_info[0].__name__
        return ENCODER.encode(line)


def event(name: str, *, level: int = logging.INFO, **fields: Json) -> None:
    """Log an event with its fields."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, name, extra={"fields": fields})


def write_logs(stream: TextIO = sys.stderr) -> None:
    """Send all events of the service, and uvicorn's warnings, to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name, level in {LOGGER.name: logging.INFO, "uvicorn.error": logging.WARNING}.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
