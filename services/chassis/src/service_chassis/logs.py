"""Structured logs: one JSON object a line on standard error, or readable text.

    {"ts": "2026-01-31T12:00:00.123456Z", "level": "info", "service": "gateway-svc", "logger": "gateway_svc.app",
     "event": "listening", "port": 9092}

`get(name)` is cheap and may be called at import. A line below the level costs one comparison. Ask `debug_enabled` first
if the fields are expensive. `set_level` changes the level of a logger, of a package, or of all, while the process runs.
Fields with a secret name (password, token, …) are masked. The time of a line is UTC, in
microseconds.

Logging never raises and never waits: a line that standard error does not accept is dropped and counted (log_sink.py).
No client can fill a disk with lines: each logger may write LINES_PER_SECOND at each level but debug, and the lines of
two seconds at once. So a thousand clients that leave together hold an event loop for 200 lines at most. A line of more
than 1 KiB, such as a traceback, counts as several. The next line has `lines_left_out`, the number of lines that were
too many before it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from service_chassis.log_sink import Sink
from service_chassis.rates import Rates

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "text"]

_LEVELS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
#: Kafka's names of levels (LogLevelConfig), and the lowest lines that they let through. No line here is above an error.
LEVELS: Final[Mapping[str, int]] = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
#: The logger whose level all have that have none of theirs, as Kafka calls it.
ROOT: Final = "root"
LINES_PER_SECOND: Final = 100
_BURST_S: Final = 2.0
_LINE_CHARACTERS: Final = 1024
_SECRET_WORDS = ("password", "secret", "token", "credential", "private_key", "authorization", "sasl_jaas")
_MASK = "**********"


class _Configuration:
    """The process's one log configuration, as in the standard library: set by `configure`, read by every logger."""

    __slots__ = ("chosen", "format", "left_out", "rates", "service")

    def __init__(self, service: str, level: Level, format: Format) -> None:  # noqa: A002
        self.service = service
        self.format: Format = format
        #: Name of a logger or a package -> the level that was set for it. The root always has one.
        self.chosen: dict[str, int] = {ROOT: _LEVELS[level]}
        self.rates = Rates(LINES_PER_SECOND, burst_s=_BURST_S)
        #: Logger and level -> the lines that were too many since the last one.
        self.left_out: dict[str, int] = {}

    def level_of(self, name: str) -> int:
        """Return the level that was set for a logger, or for the nearest of those above it."""
        while name:
            if name in self.chosen:
                return self.chosen[name]
            name = name.rpartition(".")[0]
        return self.chosen[ROOT]


class Logger:
    """A writer of log lines for one part of a service. `get` makes one for each name."""

    __slots__ = ("level", "name")

    def __init__(self, name: str, level: int) -> None:
        self.name = name
        #: The lowest line to write.
        self.level = level

    @property
    def debug_enabled(self) -> bool:
        """Whether debug lines are written; ask before computing fields on a hot path."""
        return self.level <= 10

    def debug(self, event: str, **fields: object) -> None:
        if self.level <= 10:
            self._write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        if self.level <= 20:
            self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        if self.level <= 30:
            self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        if self.level <= 40:
            self._write("error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Write an error line with the traceback of the exception that is being handled."""
        self.error(event, **{"exc_info": True, **fields})

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        configuration, key = _configuration, f"{self.name} {level}"
        if level != "debug":
            if configuration.rates.wait_s(key):
                configuration.left_out[key] = configuration.left_out.get(key, 0) + 1
                return
            if left_out := configuration.left_out.pop(key, 0):
                fields = {**fields, "lines_left_out": left_out}
        try:
            line = _rendered(level, self.name, event, fields)
        except Exception:  # a field that cannot be shown must not harm its caller
            _sink.dropped += 1
            return
        if level != "debug":
            configuration.rates.charge(key, len(line) // _LINE_CHARACTERS)
        if _sink.dropped:
            count, _sink.dropped = _sink.dropped, 0
            if not _sink.write(_rendered("warning", __name__, "log lines lost", {"count": count})):
                _sink.dropped = count  # without this notice
        _sink.write(line)


_sink = Sink()
_configuration = _Configuration("", "warning", "text")
#: Every module has one, and loggers are never removed.
_loggers: dict[str, Logger] = {}


def get(name: str) -> Logger:
    """Return the logger of a module: `log = logs.get(__name__)`."""
    return _loggers.setdefault(name, Logger(name, _configuration.level_of(name)))


def levels() -> dict[str, str]:
    """Return the level, by Kafka's names, of each module's logger, of each package, and of the root."""
    names = {level: name for name, level in LEVELS.items()}
    packages = {name.partition(".")[0] for name in _loggers}
    return {name: names[_configuration.level_of(name)] for name in sorted({ROOT, *_loggers, *packages})}


def set_level(name: str, level: str | None) -> None:
    """Set the level of one of `levels()`, and so of all below it; None: the level of those above it again.

    It lasts until the process ends, or `configure` is called.

    Raises:
        KeyError: there is no such level.
        ValueError: the root has no level above it.
    """
    if level is not None:
        _configuration.chosen[name] = LEVELS[level]
    elif name == ROOT:
        raise ValueError("the root logger keeps its level")
    else:
        _configuration.chosen.pop(name, None)
    _apply(_configuration)


def _apply(configuration: _Configuration) -> None:
    global _configuration
    _configuration = configuration
    for logger in _loggers.values():
        logger.level = configuration.level_of(logger.name)


def configure(service: str, level: Level = "info", format: Format = "json") -> None:  # noqa: A002
    """Set the level and format of every logger of this process."""
    _apply(_Configuration(service, level, format))


@contextlib.contextmanager
def configured(service: str, level: Level = "info", format: Format = "json") -> Iterator[None]:  # noqa: A002
    """Apply `configure` for the length of a block, in a process that we share."""
    kept = _configuration
    configure(service, level, format)
    try:
        yield
    finally:
        _apply(kept)


def capture_standard_logging() -> None:
    """Send the standard library's log records (uvicorn, grpc, asyncio, …) through this module, from warnings up."""
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]
    root.setLevel(logging.WARNING)


class _Forward(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        logger = Logger(record.name, _configuration.chosen[ROOT])
        fields: dict[str, object] = {"exc_info": record.exc_info} if record.exc_info else {}
        if record.levelno >= logging.ERROR:
            logger.error(record.getMessage(), **fields)
        else:
            logger.warning(record.getMessage(), **fields)


def _rendered(level: str, logger: str, event: str, fields: dict[str, Any]) -> str:
    # wall clock: the time of a log line
    written_at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    head = {"ts": written_at, "level": level, "service": _configuration.service, "logger": logger, "event": event}
    line: dict[str, Any] = {**head, **fields, **head}  # no field may pass for the head
    if (exception := _exception(line.pop("exc_info", None))) is not None:
        line["exception"] = exception
    line = {key: _masked(key, value) for key, value in line.items()}
    return json.dumps(line, default=str) if _configuration.format == "json" else _text(line)


def _exception(exc_info: Any) -> str | None:
    """Return the traceback of an exception, of a result of sys.exc_info(), or, for True, of the current exception."""
    if not exc_info:
        return None
    if isinstance(exc_info, BaseException):
        error: BaseException | None = exc_info
    else:
        error = exc_info[1] if isinstance(exc_info, tuple) else sys.exc_info()[1]
    return "".join(traceback.format_exception(error)).rstrip("\n") if error is not None else None


def _masked(key: str, value: Any) -> Any:
    lowered = key.lower()
    if any(word in lowered for word in _SECRET_WORDS) and value:
        return _MASK
    if isinstance(value, dict):
        return {inner: _masked(str(inner), inner_value) for inner, inner_value in value.items()}
    return value


def _text(line: dict[str, Any]) -> str:
    line.pop("service", None)
    exception = line.pop("exception", "")
    head = f"{line.pop('ts')} {line.pop('level'):<7} {line.pop('logger')}: {_one_line(line.pop('event'))}"
    fields = "".join(f" {key}={_one_line(value)}" for key, value in line.items())
    return f"{head}{fields}\n{exception}" if exception else head + fields


def _one_line(value: object) -> str:
    text = str(value)
    return text if text.isprintable() else repr(text)
