"""The millrace command.

`millrace up` stays in memory for as long as the broker runs, and should be ready within a second. So its usual command
lines are read without typer (`LaunchOptions.read`), which is loaded for everything else.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Run the console script; return the exit status."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["up"]:
        # Ctrl-C during the imports ends the process without a traceback; `StopRequests` handles the signal afterwards.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from millrace.launch_options import LaunchOptions

        if options := LaunchOptions.read(arguments[1:]):
            from millrace.launch import launch

            return launch(options)
    from millrace.cli.commands import run

    return run(arguments)
