"""Structured logs: one JSON object a line on standard error, or readable text.

    {"ts": "2026-01-31T12:00:00.123456Z", "level": "info", "service": "gateway-svc", "logger": "gateway_svc.app",
     "event": "listening", "port": 9092}

`get(name)` is cheap and may be called at import. A line below the level costs one comparison. Ask `debug_enabled` first
if the fields are expensive. `set_level` changes the level of a logger, of a package, or of all, while the process runs.
Fields with a secret name (password, token, …) and pydantic secrets are masked. The time of a line is UTC, in
microseconds.

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
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from service_chassis.log_allowance import Allowances
from service_chassis.log_sink import Sink

__all__ = [
    "LEVELS",
    "ROOT",
    "Logger",
    "capture_standard_logging",
    "configure",
    "configured",
    "get",
    "levels",
    "set_level",
]

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "text"]

_LEVELS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
#: Kafka's names of levels (LogLevelConfig), and the lowest lines that they let through. No line here is above an error.
LEVELS: Final[Mapping[str, int]] = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
#: The logger whose level all have that have none of theirs, as Kafka calls it.
ROOT: Final = "root"
_SECRET_WORDS = ("password", "secret", "token", "credential", "private_key", "authorization", "sasl_jaas")
_MASK = "**********"

#: level, logger name, event, fields -> line
_Render = Callable[[str, str, str, dict[str, Any]], str]


class _Threshold:
    """The level of one logger, and of every `bind` of it."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


class _Configuration:
    """The process's one log configuration, as in the standard library: owned by `configure`, read by every logger."""

    __slots__ = ("allowances", "format", "render", "service", "sink")

    def __init__(self) -> None:
        self.service = ""
        self.format: Format = "text"
        self.render: _Render | None = None
        self.allowances = Allowances()
        self.sink = Sink()


_configuration = _Configuration()
#: Name -> the level of each logger. Every module has one, and loggers are never removed.
_thresholds: dict[str, _Threshold] = {ROOT: _Threshold(_LEVELS["warning"])}
#: Name of a logger or a package -> the level that was set for it at run time. The root's is in `_thresholds`.
_chosen: dict[str, int] = {}


class Logger:
    """A writer of log lines for one part of a service; `bind` returns one with more fields in every line."""

    __slots__ = ("_fields", "_threshold", "name")

    def __init__(self, name: str, threshold: _Threshold, fields: dict[str, object] | None = None) -> None:
        self.name = name
        self._threshold = threshold
        self._fields = fields or {}

    def bind(self, **fields: object) -> Logger:
        return Logger(self.name, self._threshold, {**self._fields, **fields})

    @property
    def debug_enabled(self) -> bool:
        """Whether debug lines are written; ask before computing fields on a hot path."""
        return self._threshold.value <= 10

    def debug(self, event: str, **fields: object) -> None:
        if self._threshold.value <= 10:
            self._write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        if self._threshold.value <= 20:
            self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        if self._threshold.value <= 30:
            self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        if self._threshold.value <= 40:
            self._write("error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Write an error line with the traceback of the exception that is being handled."""
        self.error(event, **{"exc_info": True, **fields})

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
    threshold = _thresholds.get(name)
    if threshold is None:
        threshold = _thresholds[name] = _Threshold(_level_of(name))
    return Logger(name, threshold)


def levels() -> dict[str, str]:
    """Return the level, by Kafka's names, of each module's logger, of each package, and of the root."""
    names = {level: name for name, level in LEVELS.items()}
    packages = {name.partition(".")[0] for name in _thresholds}
    return {name: names[_level_of(name)] for name in sorted({*_thresholds, *packages})}


def set_level(name: str, level: str | None) -> None:
    """Set the level of one of `levels()`, and so of all below it; None: the level of those above it again.

    It lasts until the process ends, or `configure` is called.

    Raises:
        KeyError: there is no such level.
        ValueError: the root has no level above it.
    """
    if name == ROOT:
        if level is None:
            raise ValueError("the root logger keeps its level")
        _thresholds[ROOT].value = LEVELS[level]
    elif level is None:
        _chosen.pop(name, None)
    else:
        _chosen[name] = LEVELS[level]
    _apply_levels()


def _apply_levels() -> None:
    for name, threshold in _thresholds.items():
        threshold.value = _level_of(name)


def _level_of(name: str) -> int:
    """Return the level that was set for a logger, or for the nearest of those above it."""
    while name:
        if name in _chosen:
            return _chosen[name]
        name = name.rpartition(".")[0]
    return _thresholds[ROOT].value


def configure(service: str, level: Level = "info", format: Format = "json") -> None:  # noqa: A002
    """Set the level and format of every logger of this process."""
    _configuration.service = service
    _configuration.format = format
    _configuration.render = None
    _configuration.allowances = Allowances()
    _chosen.clear()
    _thresholds[ROOT].value = _LEVELS[level]
    _apply_levels()


@contextlib.contextmanager
def configured(service: str, level: Level = "info", format: Format = "json") -> Iterator[None]:  # noqa: A002
    """Apply `configure` for the length of a block, in a process that we share."""
    kept = _configuration.service, _configuration.format
    chosen, root = dict(_chosen), _thresholds[ROOT].value
    configure(service, level, format)
    try:
        yield
    finally:
        _configuration.service, _configuration.format = kept
        _configuration.render = None
        _chosen.clear()
        _chosen.update(chosen)
        _thresholds[ROOT].value = root
        _apply_levels()


def capture_standard_logging() -> None:
    """Send the standard library's log records (uvicorn, grpc, asyncio, …) through this module, from warnings up."""
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]
    root.setLevel(logging.WARNING)


class _Forward(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        logger = Logger(record.name, _thresholds[ROOT])
        fields: dict[str, object] = {"exc_info": record.exc_info} if record.exc_info else {}
        if record.levelno >= logging.ERROR:
            logger.error(record.getMessage(), **fields)
        else:
            logger.warning(record.getMessage(), **fields)


def _renderer(service: str, format: Format) -> _Render:  # noqa: A002
    rendered = _json if format == "json" else _text

    def render(level: str, logger: str, event: str, fields: dict[str, Any]) -> str:
        # wall clock: the time of a log line
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
