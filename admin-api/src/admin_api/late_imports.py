"""Modules that are imported when a request first needs them: a server of no records does without protocol_lib.

Such an import takes a tenth of a second, in which the event loop would stand. So it runs in a thread.
"""

from __future__ import annotations

import asyncio
from importlib import import_module

_imported: set[str] = set()


async def load(module: str) -> None:
    """Return once a module is imported: an import of it on the event loop then takes no time."""
    if module not in _imported:
        await asyncio.to_thread(import_module, module)
        _imported.add(module)
