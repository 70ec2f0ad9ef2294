"""Limits for peers that mean harm, and counters of frames that cost a peer nothing.

A peer that breaks a limit of a call loses the call. One that breaks a limit of the connection, or floods it, loses the
connection with GOAWAY ENHANCE_YOUR_CALM. Floods have the names of the attacks:

    PING            each asks for an answer (CVE-2019-9512), and more of them than sent frames of DATA can explain:
                    Go's gRPC measures the round trip with each that it receives
    SETTINGS        the same (CVE-2019-9515)
    RST_STREAM      calls that begin and are cancelled at once: rapid reset (CVE-2023-44487), or that the peer makes us
                    reset by frames that break the rules of a stream (CVE-2025-8671)
    CONTINUATION    a block of headers without an end (CVE-2024-27316)
    DATA            frames without or almost without bytes (CVE-2019-9518), and many such messages in one frame
    WINDOW_UPDATE   more of them than the frames of DATA that were sent can explain
    OTHER           PRIORITY, frames of unknown types, GOAWAY
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from service_chassis.http2.frames import WINDOW_MAX, ErrorCode, PeerError

#: Seconds after which counters begin again.
FLOOD_INTERVAL_S: Final = 10.0
#: Frames of each kind within an interval. Resets cost a tenth of a processor then. A gateway sends many at once: of
#: calls whose time was over while storage stood still.
FLOODS: Final[Mapping[str, int]] = {
    "PING": 1_000,
    "SETTINGS": 200,
    "RST_STREAM": 20_000,
    "DATA": 2_000,
    "WINDOW_UPDATE": 5_000,
    "OTHER": 2_000,
}
#: Streams whose windows cost as much to change as one frame of SETTINGS.
CHANGED_WINDOWS: Final = 1_000
#: Age in seconds from which on the reset of a call is no rapid one.
RAPID_S: Final = 1.0
#: Bytes of a DATA frame that ends no message from which on it is not counted as a flood.
TINY_BYTES: Final = 16
#: Messages of one frame after which messages of fewer bytes than that are counted, too.
MESSAGES_A_FRAME: Final = 100
#: Bytes that a message costs while it waits for its reader, next to its own.
MESSAGE_COST: Final = 64
#: Frames that each sent frame of DATA explains: WINDOW_UPDATE for the stream and the connection, in two parts each, and
#: a PING.
EXPLAINED_A_FRAME: Final = 5
#: The most that are explained, however much was sent.
EXPLAINED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one connection for its peer, and of the connections of a server."""

    #: Connections of a server. Each costs a descriptor, which storage needs for its files, and READ_BYTES.
    connections: int = 1_000
    #: Calls at the same time. Those of members that wait for others may be many.
    streams: int = 100_000
    #: Bytes of a block, and of its fields when decoded, with 32 bytes more for each.
    header_list_bytes: int = 16 << 10
    #: Frames of a block after the first.
    continuations: int = 16
    #: Bytes of messages that have come in part, or that nobody has read, next to the one that is being received.
    held_bytes: int = 256 << 20
    #: Bytes of messages that wait because the peer does not read, and of control frames.
    queued_bytes: int = 64 << 20
    #: Bytes of one message, for methods without a limit of their own.
    message_bytes: int = 256 << 20
    #: Bytes that a peer may send before it is given more. A connection has at least 65,535.
    stream_window: int = 16 << 20
    connection_window: int = WINDOW_MAX
    #: Frames that cost a peer nothing, by name, within FLOOD_INTERVAL_S.
    floods: Mapping[str, int] = field(default_factory=lambda: FLOODS)


class FloodMeter:
    """The counters of one connection."""

    __slots__ = ("_began", "_counts", "_limits")

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._counts = dict.fromkeys(limits, 0)
        self._began = time.monotonic()

    def count(self, name: str, times: int = 1) -> None:
        """Count a frame, or one that costs as much as several.

        Raises:
            PeerError: there were too many of its kind.
        """
        count = self._counts[name] = self._counts[name] + times
        if count > self._limits[name]:  # mutant: flood-ends-the-connection
            now = time.monotonic()
            if now - self._began < FLOOD_INTERVAL_S:
                raise PeerError(ErrorCode.ENHANCE_YOUR_CALM, f"a flood of {name}")
            self._began = now
            self._counts = dict.fromkeys(self._limits, 0)


class TransportCounts:
    """Counts of all connections of one server or channel, for metrics. The event loop's thread writes them."""

    __slots__ = (
        "bytes_received", "bytes_sent", "clogged_s", "connections", "floods", "frames_received", "frames_sent",
        "resets_received", "resets_sent", "streams",
    )  # fmt: skip

    def __init__(self) -> None:
        self.frames_received = self.frames_sent = 0
        self.bytes_received = self.bytes_sent = 0
        self.streams = 0
        self.resets_received = self.resets_sent = 0
        self.connections = 0
        #: Seconds that messages waited for a window of the peer or for its socket, over all streams.
        self.clogged_s = 0.0
        #: Connections that were ended because of a flood or of a limit.
        self.floods = 0
