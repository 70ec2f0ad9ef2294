"""Many files synced by one call, through Linux's queue of asynchronous I/O (io_submit(2), IOCB_CMD_FDSYNC, Linux 4.18).

The queue accepts an fdatasync of each file, carries them out at the same time, and reports the result of each.

A thread that syncs has to get the interpreter again when its call returns. With one thread for each file, that
dominates the time when the event loop is busy. Here it happens twice, for any number of files. A sync here promises the
same as fdatasync(2), and an error names the same file.
"""

from __future__ import annotations

import ctypes
import errno
import os  # past the file layer: the kernel's queue of syncs
import platform
from collections.abc import Sequence
from typing import Final

#: The largest number of syncs that are under way at a time.
SYNCS_MAX: Final = 256
_FDSYNC: Final = 3
#: io_setup, io_destroy, io_submit, io_getevents; neither the C library nor Python has them.
_SYSTEM_CALLS: Final = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4), "riscv64": (0, 1, 2, 4)}


class _Request(ctypes.Structure):
    """struct iocb of linux/aio_abi.h, little-endian."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("event_descriptor", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """struct io_event: `data` is the request's."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class SyncQueue:
    """Used by one thread at a time."""

    def __init__(self) -> None:
        """Set up the system's queue.

        Raises:
            OSError: the system has none for us.
        """
        calls = _SYSTEM_CALLS.get(platform.machine())
        if calls is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._setup, self._destroy, self._submit, self._get_events = calls
        self._system_call = ctypes.CDLL(None, use_errno=True).syscall
        self._system_call.restype = ctypes.c_long
        self._context = ctypes.c_uint64(0)
        self._requests = (_Request * SYNCS_MAX)()
        self._events = (_Event * SYNCS_MAX)()
        for number, request in enumerate(self._requests):
            request.data = number
            request.opcode = _FDSYNC
        first, size = ctypes.addressof(self._requests), ctypes.sizeof(_Request)
        self._pointers = (ctypes.c_uint64 * SYNCS_MAX)(*range(first, first + SYNCS_MAX * size, size))
        if self._call(self._setup, ctypes.c_long(SYNCS_MAX), ctypes.byref(self._context)) < 0:
            raise OSError(ctypes.get_errno(), "no queue of asynchronous I/O")

    def _call(self, number: int, *arguments: object) -> int:
        result: int = self._system_call(ctypes.c_long(number), *arguments)
        return result

    def close(self) -> None:
        """Give it back; nothing is under way."""
        self._call(self._destroy, self._context)

    def sync(self, descriptors: Sequence[int]) -> list[OSError | None]:
        """Bring the bytes and sizes of these files to the disk; return for each the error, or None."""
        outcomes: list[OSError | None] = []
        for start in range(0, len(descriptors), SYNCS_MAX):
            outcomes += self._sync_some(descriptors[start : start + SYNCS_MAX])
        return outcomes

    def _sync_some(self, descriptors: Sequence[int]) -> list[OSError | None]:
        outcomes: list[OSError | None] = [None] * len(descriptors)
        for number, descriptor in enumerate(descriptors):
            self._requests[number].descriptor = descriptor
        taken = max(0, self._call(self._submit, self._context, ctypes.c_long(len(descriptors)), self._pointers))
        for number in range(taken, len(descriptors)):  # the queue did not take them
            try:
                os.fdatasync(descriptors[number])
            except OSError as error:
                outcomes[number] = error
        while taken > 0:
            wanted = ctypes.c_long(taken)
            count = self._call(self._get_events, self._context, wanted, wanted, self._events, None)
            if count < 0 and (code := ctypes.get_errno()) != errno.EINTR:
                raise OSError(code, os.strerror(code))
            for event in self._events[: max(0, count)]:
                if event.result < 0:
                    # mutant: queued-sync-result
                    outcomes[event.data] = OSError(-event.result, os.strerror(-event.result))
            taken -= max(0, count)
        return outcomes
