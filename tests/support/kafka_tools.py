"""Apache Kafka's command-line tools in one JVM, whose start takes longer than most tools do (`KafkaTools.java`).

ConsoleConsumer counts in a static field: each of its runs needs another JVM, as `kafka_broker.java` starts.
"""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

from support.kafka_broker import JVM, libraries

RUNNER = Path(__file__).with_name("KafkaTools.java")
#: Lines of the runner itself, and the greeting of the logging library.
_NOISE = re.compile(r"^((KafkaTools\$Ended: )?ended|SLF4J.*)\n", re.MULTILINE)


@functools.cache
def _process() -> subprocess.Popen[str]:
    """Start the JVM. It ends when this process ends, and its standard input with it."""
    return subprocess.Popen(
        [*JVM, "-Xmx256m", "-cp", libraries(), str(RUNNER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_tool(main: str, *arguments: str) -> tuple[str, int]:
    """Run a tool; return its output and exit status."""
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\t".join((main, "", *arguments)) + "\n")
    process.stdin.flush()
    lines: list[str] = []
    while not (line := process.stdout.readline()).startswith("== "):
        assert line, f"the JVM of the tools has ended:\n{''.join(lines)[-3000:]}"
        lines.append(line)
    return _NOISE.sub("", "".join(lines)).removesuffix("\n"), int(line.split()[1])


def tool(main: str, *arguments: str) -> str:
    """Run a tool that succeeds; return its output."""
    output, status = run_tool(main, *arguments)
    assert status == 0, output[-3000:]
    return output
