"""Whether a client has closed its end of a connection, found without reading the bytes that it sent before.

The client of a request that waited in this gateway may have closed the connection and asked again through another
gateway. So the gateway checks the socket before it begins such a request (`requests.handler.WhenClientLeft`). A request
has waited if the connection held it for HELD_S, or if the event loop stood still, as in a process that was stopped.
"""

from __future__ import annotations

import select
from typing import Final

#: Seconds for which a request is held before it counts as one that waited.
HELD_S: Final = 0.5
#: Seconds between two checks of the event loop's delay.
TICK_S: Final = 0.25
#: A delay of the event loop that counts as a standstill, in seconds.
STANDSTILL_S: Final = 0.25
#: Seconds after a standstill in which bytes that are read may have waited in their sockets.
AFTERMATH_S: Final = 2.0
#: Seconds after the first connection to an idle gateway in which its bytes may have waited.
FIRST_S: Final = 0.05


def has_left(descriptor: int) -> bool:
    """Return whether the other end of a socket is closed, or the descriptor is no longer open."""
    if descriptor < 0:
        return True
    poller = select.poll()
    poller.register(descriptor, select.POLLRDHUP)
    return bool(poller.poll(0))
