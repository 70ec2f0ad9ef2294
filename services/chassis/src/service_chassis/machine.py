"""The machine that a process runs on, for peers that may be on the same one."""

from __future__ import annotations

import functools
from typing import Final

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


@functools.cache
def machine_id() -> str:
    """Return the boot id of the running system, which its containers share; empty where there is none."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
