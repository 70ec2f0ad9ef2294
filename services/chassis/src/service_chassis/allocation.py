"""How the C library's allocator treats memory that was freed, for processes through which megabytes pass.

By default glibc gives freed memory of that size back to the kernel at once, and every page of the next message is
cleared and mapped anew: a tenth to a fifth of what the message costs. What is kept instead has a bound.
"""

from __future__ import annotations

import ctypes
from typing import Final

__all__ = ["keep_freed_memory"]

#: Most memory at the end of the heap that is kept though it is free; larger allocations than this are mapped apart.
KEPT_BYTES: Final = 16 * 1024 * 1024
#: <malloc.h>: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> bool:
    """Call once, when the process begins; False where there is no mallopt (musl): then nothing changes.

    All threads share one heap from then on: heaps of their own would each keep that much.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((_TRIM_THRESHOLD, KEPT_BYTES), (_MMAP_THRESHOLD, KEPT_BYTES), (_ARENA_MAX, 1))
    return all(mallopt(parameter, value) for parameter, value in wanted)
