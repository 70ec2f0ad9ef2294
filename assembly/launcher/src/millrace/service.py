"""`python -m millrace.service NAME`: one service as a child of the launcher; the command line names it.

Standard input is a socket whose other end the launcher holds. A byte in it asks the service to stop. It closes when
the launcher ends, even by kill -9, which asks for the same. Signals that stop other programs are ignored, so that the
launcher alone decides on the order in which services stop.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib import import_module

#: Name on the command line -> module with `main() -> int`.
MAINS = {
    "broker": "millrace.direct",
    "storage-svc": "storage_svc.__main__",
    "gateway-svc": "gateway_svc.__main__",
    "admin-api": "admin_api.__main__",
}

#: SIGTTOU: a line of the log must not stop the process where the terminal has `stty tostop`.
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTTOU)


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in MAINS:
        print(f"usage: python -m millrace.service {'|'.join(MAINS)}", file=sys.stderr)
        return 2
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)  # the launcher blocked them until here
    os.environ["MILLRACE_STOP_ON_STDIN"] = "true"
    # Objects of an import stay. Searching them for garbage costs a tenth of the start.
    gc.disable()
    module = import_module(MAINS[sys.argv.pop()])
    gc.freeze()
    gc.enable()
    return int(module.main())


if __name__ == "__main__":
    sys.exit(main())
