"""The options of `millrace up`, read without typer, whose import takes a tenth of a second and 5 MB."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

_GATEWAYS_MAX = 64
_PORT_MAX = 65535


@dataclass(frozen=True)
class LaunchOptions:
    """The options of the command; a field's name with dashes is the name of its option."""

    data_dir: str | None = None
    kafka_port: int = 9092
    http_port: int = 8082
    #: The port of the first service's /metrics, of the next service the next one; 0 for free ports.
    metrics_port: int = 0
    host: str = "localhost"
    #: REST changes everything, so it is opened to others by itself, not with Kafka.
    http_host: str = "localhost"
    advertised_host: str | None = None
    topics: str | None = None
    gateways: int = 1
    processes: bool = False

    @classmethod
    def read(cls, arguments: list[str]) -> Self | None:
        """Return the options of a command line of `--name value` and `--name=value`.

        Return None for everything else, such as `--help` or a mistake. typer (`cli.up`) then parses the same options.
        """
        defaults = {f"--{field.name.replace('_', '-')}": field for field in fields(cls)}
        given: dict[str, str | int | bool] = {}
        rest = iter(arguments)
        for argument in rest:
            option, equals, text = argument.partition("=")
            field = defaults.get(option)
            if field is None or (equals and field.default is False):
                return None
            value = text if equals or field.default is False else next(rest, "-")
            if not equals and value.startswith("-"):
                return None
            if field.default is False:
                given[field.name] = True
            elif isinstance(field.default, int):
                if not (value.isascii() and value.isdecimal()):
                    return None
                given[field.name] = int(value)
            else:
                given[field.name] = value
        options = cls(**given)  # type: ignore[arg-type]
        return options if options.fault() is None else None

    @property
    def separate(self) -> bool:
        return self.processes or self.gateways > 1

    def fault(self) -> str | None:
        """Return the reason why these options cannot be meant, None if they can."""
        if self.data_dir == "":
            return "--data-dir: the name is empty; is a shell variable not set?"
        for option, host in (
            ("--host", self.host),
            ("--http-host", self.http_host),
            ("--advertised-host", self.advertised_host),
        ):
            if host == "":
                return f"{option}: the host is empty; 0.0.0.0 stands for every interface"
        if not 1 <= self.gateways <= _GATEWAYS_MAX:
            return f"--gateways: {self.gateways} is not a number from 1 to {_GATEWAYS_MAX}"
        services = self.gateways + 2 if self.separate else 2
        if self.metrics_port + services - 1 > _PORT_MAX:
            return f"--metrics-port: {services} services need {services} ports from there"
        metrics = range(self.metrics_port, self.metrics_port + services) if self.metrics_port else ()
        seen: dict[int, str] = {}
        for option, port in (
            ("--kafka-port", self.kafka_port),
            ("--http-port", self.http_port),
            *(("--metrics-port", port) for port in metrics),
        ):
            if not 0 <= port <= _PORT_MAX:
                return f"{option}: {port} is not a port"
            if port and seen.setdefault(port, option) != option:
                return f"{option}: port {port} is that of {seen[port]} too"
        return None
