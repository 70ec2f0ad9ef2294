"""Structured logs: one JSON object a line on standard error, or readable text.

    {"ts": "2026-01-31T12:00:00.123456Z", "level": "info", "service": "gateway-svc", "logger": "gateway_svc.app",
     "event": "listening", "port": 9092}

`get(name)` is cheap and may be called at import. A line below the level costs one comparison. Call `debug_enabled()`
first if the fields are expensive. Fields with a secret name (password, token, …) and pydantic secrets are masked. The
time of a line is UTC, in microseconds.

Logging never raises and never waits: a line that standard error does not accept is dropped and counted (log_sink.py).
No client can fill a disk with lines: each logger has an allowance for each level but debug (log_allowance.py). The next
line has `lines_left_out`, the number of lines without allowance before it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from service_chassis.log_allowance import Allowances
from service_chassis.log_sink import Sink

__all__ = ["Logger", "capture_standard_logging", "configure", "configured", "debug_enabled", "get"]

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "text"]

_LEVELS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_SECRET_WORDS = ("password", "secret", "token", "credential", "private_key", "authorization", "sasl_jaas")
_MASK = "**********"

#: level, logger name, event, fields -> line
_Render = Callable[[str, str, str, dict[str, Any]], str]


class _Configuration:
    """The process's one log configuration, as in the standard library: owned by `configure`, read by every logger."""

    __slots__ = ("allowances", "format", "level", "render", "service", "sink")

    def __init__(self) -> None:
        self.level = 30
        self.service = ""
        self.format: Format = "text"
        self.render: _Render | None = None
        self.allowances = Allowances()
        self.sink = Sink()


_configuration = _Configuration()


class Logger:
    """A writer of log lines for one part of a service; `bind` returns one with more fields in every line."""

    __slots__ = ("_fields", "name")

    def __init__(self, name: str, fields: dict[str, object] | None = None) -> None:
        self.name = name
        self._fields = fields or {}

    def bind(self, **fields: object) -> Logger:
        return Logger(self.name, {**self._fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        if _configuration.level <= 10:
            self._write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        if _configuration.level <= 20:
            self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        if _configuration.level <= 30:
            self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Write an error line with the traceback of the exception that is being handled."""
        self._write("error", event, {"exc_info": True, **fields})

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        allowance = None if level == "debug" else _configuration.allowances.of(self.name, level)
        if allowance is not None and not allowance.spend():
            return
        try:
            line = self._rendered(level, event, fields, 0 if allowance is None else allowance.left_out())
        except Exception:  # a field that cannot be shown must not harm its caller
            _configuration.sink.dropped += 1
            return
        if allowance is not None:
            allowance.charge(len(line))
        sink = _configuration.sink
        if sink.dropped:
            count, sink.dropped = sink.dropped, 0
            if not sink.write(_render()("warning", __name__, "log lines lost", {"count": count})):
                sink.dropped = count  # without this notice
        sink.write(line)

    def _rendered(self, level: str, event: str, fields: dict[str, object], left_out: int) -> str:
        if left_out:
            fields = {**fields, "lines_left_out": left_out}
        return _render()(level, self.name, event, {**self._fields, **fields})


def _render() -> _Render:
    render = _configuration.render
    if render is None:
        render = _configuration.render = _renderer(_configuration.service, _configuration.format)
    return render


def get(name: str) -> Logger:
    """Return the logger of a module: `log = logs.get(__name__)`."""
    return Logger(name)


def configure(service: str, level: Level = "info", format: Format = "json") -> None:  # noqa: A002
    """Set the level and format of every logger of this process."""
    _configuration.service = service
    _configuration.level = _LEVELS[level]
    _configuration.format = format
    _configuration.render = None
    _configuration.allowances = Allowances()


@contextlib.contextmanager
def configured(service: str, level: Level = "info", format: Format = "json") -> Iterator[None]:  # noqa: A002
    """Apply `configure` for the length of a block, in a process that we share."""
    kept = _configuration.service, _configuration.level, _configuration.format
    configure(service, level, format)
    try:
        yield
    finally:
        _configuration.service, _configuration.level, _configuration.format = kept
        _configuration.render = None


def debug_enabled() -> bool:
    """Return whether debug lines are written; call it before computing fields on a hot path."""
    return _configuration.level <= 10


def capture_standard_logging() -> None:
    """Send the standard library's log records (uvicorn, grpc, asyncio, …) through this module, from warnings up."""
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]
    root.setLevel(logging.WARNING)


class _Forward(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        logger = Logger(record.name)
        fields: dict[str, object] = {"exc_info": record.exc_info} if record.exc_info else {}
        if record.levelno >= logging.ERROR:
            logger.error(record.getMessage(), **fields)
        else:
            logger.warning(record.getMessage(), **fields)


def _renderer(service: str, format: Format) -> _Render:  # noqa: A002
    rendered = _json if format == "json" else _text

    def render(level: str, logger: str, event: str, fields: dict[str, Any]) -> str:
        written_at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        head = {"ts": written_at, "level": level, "service": service, "logger": logger, "event": event}
        line: dict[str, Any] = {**head, **fields, **head}  # no field may pass for the head
        if (exception := _exception(line.pop("exc_info", None))) is not None:
            line["exception"] = exception
        return rendered({key: _masked(key, value) for key, value in line.items()})

    return render


def _exception(exc_info: Any) -> str | None:
    """Return the traceback of an exception, of a result of sys.exc_info(), or, for True, of the current exception."""
    if not exc_info:
        return None
    if isinstance(exc_info, BaseException):
        error: BaseException | None = exc_info
    else:
        error = exc_info[1] if isinstance(exc_info, tuple) else sys.exc_info()[1]
    return "".join(traceback.format_exception(error)).rstrip("\n") if error is not None else None


def _json(line: dict[str, Any]) -> str:
    return json.dumps(line, default=str)


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
