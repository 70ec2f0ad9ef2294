"""One JSON object per line on stderr: ts, level, service, event, then the event's fields.

    {"ts": "2026-01-31T12:00:00Z", "level": "info", "service": "spark-etl", "event": "run started", "version": 7}

The JVM's warnings have the same form (jvm/log4j2.properties).
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

SERVICE = "spark-etl"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        timestamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "ts": timestamp.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "service": SERVICE,
            "event": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Log:
    """`log.info("batch committed", batch=3)`; thin, so that every line has the same shape."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **fields: object) -> None:
        self._logger.debug(event, extra={"fields": fields})

    def info(self, event: str, **fields: object) -> None:
        self._logger.info(event, extra={"fields": fields})

    def warning(self, event: str, **fields: object) -> None:
        self._logger.warning(event, extra={"fields": fields})

    def error(self, event: str, *, exc_info: bool = False, **fields: object) -> None:
        self._logger.error(event, exc_info=exc_info, extra={"fields": fields})


class _Others(logging.Handler):
    """Lines of libraries, without stack traces. py4j reports each failure of a call, which its caller reports too."""

    def emit(self, record: logging.LogRecord) -> None:
        if "/py4j/" not in record.pathname:
            record.exc_info = None
            print(self.format(record), file=sys.stderr)


def configure(level: str) -> Log:
    root = logging.getLogger()
    if level != "debug" and not any(isinstance(each, _Others) for each in root.handlers):
        others = _Others()
        others.setFormatter(JsonFormatter())
        root.addHandler(others)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("spark_etl")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
    return Log(logger)


def get() -> Log:
    return Log(logging.getLogger("spark_etl"))
