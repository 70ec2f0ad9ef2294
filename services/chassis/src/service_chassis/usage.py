"""`--help` and `--version` of a service: it has no other options, because MILLRACE_* variables set everything."""

from __future__ import annotations

import sys
import textwrap

from service_chassis.settings import ServiceSettings, described
from service_chassis.version import VERSION

__all__ = ["answer"]

_WIDTH = 100


def answer(service: str, about: str, settings_class: type[ServiceSettings], example: str, arguments: list[str]) -> int:
    """Print the answer to a service's command line and return the exit status. `about` describes the service."""
    if arguments == ["--version"]:
        print(f"{service} {VERSION}")
        return 0
    if arguments not in (["--help"], ["-h"], ["help"]):
        print(f"{service}: no such option: {arguments[0]}; see {service} --help", file=sys.stderr)
        return 2
    lines = [f"Usage: [VARIABLE=VALUE…] {service} [--help] [--version]", "", about.strip(), ""]
    if example:
        lines += ["Example:", f"  {example}", ""]
    lines.append("Variables and their defaults:")
    for name, default, meaning in described(settings_class):
        lines += [f"  {name}={default}", textwrap.indent(textwrap.fill(meaning, _WIDTH - 6), " " * 6)]
    print("\n".join(lines))
    return 0
