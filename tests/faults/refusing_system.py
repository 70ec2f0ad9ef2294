"""The system calls of the file layer, each of which can be made to fail.

system = RefusingSystem(monkeypatch)
system.refuse(errno.EMFILE, after=7)      # the eighth call that can fail with it, and every later one
…
system.work_again()
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from typing import Any

import pytest
from storage_svc.log.disk import files

_OPENING = frozenset(("open", "scandir"))
_WRITING = frozenset(("pwritev", "pwrite", "open", "replace", "makedirs"))
#: A sync that fails, for any reason, takes its log offline until the next start.
_SYNCING = frozenset(("fsync", "fdatasync"))
_OTHERS = frozenset(("pread", "preadv", "ftruncate", "fstat", "stat", "unlink", "mmap"))
_ALL = _OPENING | _WRITING | _OTHERS
#: The calls that can fail with each error.
FAILING = {
    errno.EMFILE: _OPENING,
    errno.ENFILE: _OPENING,
    errno.ENOMEM: _ALL,
    errno.EAGAIN: _ALL,
    errno.EINTR: _ALL,
    errno.ENOSPC: _WRITING,
    errno.EIO: _ALL | _SYNCING,
}
#: The errors after which everything works again without a restart.
PASSING = frozenset(FAILING) - {errno.EIO}


class _Module:
    """A module, some of whose functions count their calls and may fail."""

    def __init__(self, module: Any, system: RefusingSystem, names: frozenset[str]) -> None:
        self._module, self._system, self._names = module, system, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name not in self._names:
            return found

        def called(*arguments: Any, **options: Any) -> Any:
            self._system.met(name)
            return found(*arguments, **options)

        return called


class RefusingSystem:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._once = False
        self._left = 0
        #: Calls that failed.
        self.refused: list[str] = []
        monkeypatch.setattr(files, "os", _Module(os, self, _ALL | _SYNCING))
        monkeypatch.setattr(files, "mmap", _Module(mmap, self, frozenset(("mmap",))))

    def refuse(self, number: int, *, after: int, once: bool = False) -> None:
        """Let calls fail with this error, except the first `after` of those that could fail."""
        self._number, self._left, self._once = number, after, once

    def work_again(self) -> None:
        self._number = 0

    def met(self, name: str) -> None:
        """Count a call, and fail if it is its turn."""
        with self._lock:
            if not self._number or name not in FAILING[self._number]:
                return
            self._left -= 1
            if self._left >= 0 or (self._once and self._left < -1):
                return
            self.refused.append(name)
            number = self._number
        raise OSError(number, os.strerror(number))
