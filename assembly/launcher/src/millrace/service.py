"""`python -m millrace.service NAME`: one service as a child of the launcher; the command line names it.

Standard input is a pipe whose other end the launcher holds. When the launcher ends, even by kill -9, the pipe closes
and the service stops in order.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from importlib import import_module

__all__ = ["MAINS", "main"]

#: Name on the command line -> module with `main() -> int`.
MAINS = {
    "broker": "millrace.broker_service",
    "storage-svc": "storage_svc.__main__",
    "gateway-svc": "gateway_svc.__main__",
    "admin-api": "admin_api.__main__",
}


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in MAINS:
        print(f"usage: python -m millrace.service {'|'.join(MAINS)}", file=sys.stderr)
        return 2
    threading.Thread(target=_stop_when_launcher_ends, name="launcher-watch", daemon=True).start()
    # Objects of an import stay. Searching them for garbage costs a tenth of the start.
    gc.disable()
    module = import_module(MAINS[sys.argv.pop()])
    gc.freeze()
    gc.enable()
    return int(module.main())


def _stop_when_launcher_ends() -> None:
    while os.read(0, 64):
        continue
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
