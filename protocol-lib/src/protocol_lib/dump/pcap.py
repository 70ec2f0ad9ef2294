"""Packets recorded by tcpdump as the bytes of each TCP connection.

The file is libpcap's: a header of 24 bytes with the byte order, the unit of time and the link type; then packets, each
with a header of 16 bytes: seconds, fraction, bytes that are here, bytes that there were. Other packets than TCP are
skipped.

A segment that repeats earlier bytes is dropped or cut. One that comes early waits for the ones before it. Where a
packet was never recorded, the rest of that direction is left out.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from protocol_lib.dump.stream import Connection, Piece, Side
from protocol_lib.errors import DecodeError

#: Byte order by the first four bytes; the latter two have nanoseconds.
_BYTE_ORDERS: Final = {
    bytes.fromhex("d4c3b2a1"): "<",
    bytes.fromhex("a1b2c3d4"): ">",
    bytes.fromhex("4d3cb2a1"): "<",
    bytes.fromhex("a1b23c4d"): ">",
}
_PCAPNG: Final = bytes.fromhex("0a0d0d0a")
_FILE_HEADER_SIZE: Final = 24
_PACKET_HEADER_SIZE: Final = 16
_TCP: Final = 6
_SYN: Final = 2
_IPV4: Final = 0x0800
_IPV6: Final = 0x86DD
_VLAN: Final = 0x8100
#: Segments that wait for one before them; more, and that one was never recorded.
_EARLY_MAX: Final = 1000
#: Bytes before the network's packet, and where its type is among them (None: its version says), by link type.
_LINKS: Final[dict[int, tuple[int, int | None]]] = {
    0: (4, None),  # loopback of BSD
    1: (14, 12),  # Ethernet
    12: (0, None),  # none
    101: (0, None),  # none
    108: (4, None),  # loopback of OpenBSD
    113: (16, 14),  # Linux, any interface
    276: (20, 0),  # Linux, any interface, version 2
}

Address = tuple[str, int]


@dataclass(slots=True)
class _Segment:
    """One TCP segment."""

    source: Address
    target: Address
    sequence: int
    starts: bool
    data: bytes


@dataclass(slots=True)
class _Direction:
    """One way of a connection: the next sequence number, and segments that came too early."""

    next: int | None = None
    early: dict[int, bytes] = field(default_factory=dict)

    def take(self, segment: _Segment) -> bytes:
        """Return the bytes that are in order now."""
        if segment.starts:
            self.next = (segment.sequence + 1) % 2**32
            self.early.clear()
        if self.next is None:
            self.next = segment.sequence
        if segment.data and len(self.early) < _EARLY_MAX:
            self.early.setdefault(segment.sequence, segment.data)
        taken = bytearray()
        while ready := [sequence for sequence in self.early if (self.next - sequence) % 2**32 < 2**31]:
            for sequence in ready:
                fresh = self.early.pop(sequence)[(self.next - sequence) % 2**32 :]
                taken += fresh
                self.next = (self.next + len(fresh)) % 2**32
        return bytes(taken)


def is_pcap(data: bytes) -> bool:
    return data[:4] in _BYTE_ORDERS


def is_pcapng(data: bytes) -> bool:
    """Return whether it is the other format of captures, which Wireshark writes and nothing here reads."""
    return data.startswith(_PCAPNG)


def read_pcap(data: bytes) -> list[Connection]:
    """Return the connections in a capture, by their first packet.

    Raises DecodeError for bytes that are no capture, and for another kind of link.
    """
    connections: dict[frozenset[Address], Connection] = {}
    clients: dict[frozenset[Address], Address] = {}
    directions: dict[tuple[Address, Address], _Direction] = {}
    for segment in _segments(data):
        ends = frozenset((segment.source, segment.target))
        if segment.starts:
            clients.setdefault(ends, segment.source)  # a connection's first SYN is the client's
        connection = connections.setdefault(ends, Connection(f"{_spelled(segment.source)}, {_spelled(segment.target)}"))
        taken = directions.setdefault((segment.source, segment.target), _Direction()).take(segment)
        if taken:
            side = Side.UNKNOWN
            if ends in clients:
                side = Side.CLIENT if segment.source == clients[ends] else Side.BROKER
            connection.pieces.append(Piece(_spelled(segment.source), side, taken))
    return [connection for connection in connections.values() if connection.pieces]


def _spelled(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _segments(data: bytes) -> Iterator[_Segment]:
    if not is_pcap(data) or len(data) < _FILE_HEADER_SIZE:
        raise DecodeError("not a capture of libpcap")
    order = _BYTE_ORDERS[data[:4]]
    (link,) = struct.unpack_from(f"{order}I", data, 20)
    if link & 0xFFFF not in _LINKS:
        raise DecodeError(f"a capture of link type {link & 0xFFFF}")
    skip, type_at = _LINKS[link & 0xFFFF]
    position = _FILE_HEADER_SIZE
    while position + _PACKET_HEADER_SIZE <= len(data):
        (here,) = struct.unpack_from(f"{order}I", data, position + 8)
        position += _PACKET_HEADER_SIZE
        packet = data[position : position + here]
        position += here
        try:
            segment = _segment(packet, skip, type_at)
        except (struct.error, IndexError):
            continue  # cut short when it was recorded
        if segment is not None:
            yield segment


def _segment(packet: bytes, skip: int, type_at: int | None) -> _Segment | None:
    """Return the TCP segment in a packet, or None."""
    if type_at is not None:
        (type_,) = struct.unpack_from(">H", packet, type_at)
        while type_ == _VLAN:
            (type_,) = struct.unpack_from(">H", packet, skip + 2)
            skip += 4
        if type_ not in (_IPV4, _IPV6):
            return None
    network = packet[skip:]
    if network[0] >> 4 == 4:
        header_size, protocol = (network[0] & 15) * 4, network[9]
        (size,) = struct.unpack_from(">H", network, 2)
        source, target = network[12:16], network[16:20]
    elif network[0] >> 4 == 6:
        header_size, protocol = 40, network[6]
        size = header_size + struct.unpack_from(">H", network, 4)[0]
        source, target = network[8:24], network[24:40]
    else:
        return None
    if protocol != _TCP:
        return None
    transport = network[header_size : size or None]  # a network card that cuts packets up itself leaves the size at 0
    source_port, target_port, sequence = struct.unpack_from(">HHI", transport)
    return _Segment(
        (str(ip_address(source)), source_port),
        (str(ip_address(target)), target_port),
        sequence,
        bool(transport[13] & _SYN),
        transport[(transport[12] >> 4) * 4 :],
    )
