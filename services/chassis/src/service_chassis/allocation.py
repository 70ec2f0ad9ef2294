"""Freed memory in the C library's allocator, for processes that handle records by the megabyte.

By default glibc returns freed memory of that size to the kernel at once. Every page of the next message is then cleared
and mapped again, which takes a tenth to a fifth of the time of the message. The memory that is kept here has a bound.
"""

from __future__ import annotations

import ctypes
from typing import Final

__all__ = ["keep_freed_memory"]

#: Most free memory that is kept at the end of the heap; larger allocations are mapped separately.
KEPT_BYTES: Final = 16 * 1024 * 1024
#: <malloc.h>: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> bool:
    """Keep freed memory for the next message; return False where there is no mallopt (musl).

    Call it once, when the process begins. All threads then share one heap, because separate heaps would each keep as
    much.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((_TRIM_THRESHOLD, KEPT_BYTES), (_MMAP_THRESHOLD, KEPT_BYTES), (_ARENA_MAX, 1))
    return all(mallopt(parameter, value) for parameter, value in wanted)
