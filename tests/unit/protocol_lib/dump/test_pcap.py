"""Captures written packet by packet, as the network may deliver them."""

import random
import struct
from ipaddress import ip_address

import pytest
from protocol_lib.dump.pcap import is_pcap, read_pcap
from protocol_lib.dump.stream import Side
from protocol_lib.errors import DecodeError

CLIENT, BROKER = ("10.0.0.1", 50000), ("10.0.0.2", 9092)
SYN, ACK = 2, 16


def segment(source, target, sequence, data=b"", flags=ACK):
    """Build an IP packet with one TCP segment."""
    transport = struct.pack(">HHIIBBHHH", source[1], target[1], sequence % 2**32, 0, 6 << 4, flags, 0, 0, 0)
    transport += b"\1\1\1\0" + data
    addresses = ip_address(source[0]).packed + ip_address(target[0]).packed
    if ":" in source[0]:
        return struct.pack(">IHBB", 6 << 28, len(transport), 6, 64) + addresses + transport
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(transport), 0, 0, 64, 6, 0)
    return head + addresses + transport


def ethernet(packet):
    return bytes(12) + (b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd") + packet


def capture(packets, *, link=1, order="<", magic=0xA1B2C3D4):
    written = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    for packet in packets:
        written += struct.pack(f"{order}IIII", 0, 0, len(packet), len(packet)) + packet
    return written


def streams(data):
    return [
        (connection.name, [(piece.side, piece.data) for piece in connection.pieces]) for connection in read_pcap(data)
    ]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic", [0xA1B2C3D4, 0xA1B23C4D])
@pytest.mark.parametrize(
    ("link", "frame"),
    [
        (1, ethernet),
        (1, lambda packet: bytes(12) + b"\x81\x00\x00\x05" + ethernet(packet)[12:]),
        (0, lambda packet: b"\2\0\0\0" + packet),
        (101, lambda packet: packet),
        (113, lambda packet: bytes(14) + ethernet(packet)[12:]),
        (276, lambda packet: ethernet(packet)[12:14] + bytes(18) + packet),
    ],
)
def test_links_and_byte_orders(link, frame, order, magic):
    packets = [
        frame(segment(CLIENT, BROKER, 99, flags=SYN)),
        frame(segment(BROKER, CLIENT, 499, flags=SYN | ACK)),
        frame(segment(CLIENT, BROKER, 100, b"question")),
        frame(segment(BROKER, CLIENT, 500, b"answer")),
    ]
    data = capture(packets, link=link, order=order, magic=magic)
    assert is_pcap(data)
    assert streams(data) == [("10.0.0.1:50000, 10.0.0.2:9092", [(Side.CLIENT, b"question"), (Side.BROKER, b"answer")])]


def test_addresses_of_version_6_and_a_start_that_was_not_recorded():
    client, broker = ("fd00::1", 40000), ("fd00::2", 9092)
    packets = [ethernet(segment(client, broker, 7, b"abc")), ethernet(segment(broker, client, 9, b"de"))]
    assert streams(capture(packets)) == [
        ("[fd00::1]:40000, [fd00::2]:9092", [(Side.UNKNOWN, b"abc"), (Side.UNKNOWN, b"de")])
    ]


@pytest.mark.parametrize("seed", range(20))
def test_segments_out_of_order_and_repeated_are_one_stream(seed):
    draw = random.Random(seed)
    sent = draw.randbytes(600)
    start = draw.choice((0, 2**32 - 300))
    cuts = [(at, at + draw.randrange(1, 80)) for at in range(0, 600, 20)]
    cuts += draw.choices(cuts, k=10)
    draw.shuffle(cuts)
    cuts += [(at, at + 20) for at in range(0, 600, 20)]
    packets = [segment(CLIENT, BROKER, start - 1, flags=SYN)]
    packets += [segment(CLIENT, BROKER, start + begin, sent[begin:end]) for begin, end in cuts]
    ((_, pieces),) = streams(capture(map(ethernet, packets)))
    assert b"".join(data for _, data in pieces) == sent


def test_what_follows_a_packet_that_was_never_recorded_is_left_out():
    packets = [segment(CLIENT, BROKER, 99, flags=SYN), segment(CLIENT, BROKER, 100, b"ab")]
    packets += [segment(CLIENT, BROKER, 103 + index, b"x") for index in range(3000)]
    ((_, pieces),) = streams(capture(map(ethernet, packets)))
    assert pieces == [(Side.CLIENT, b"ab")]


def test_other_protocols_and_packets_cut_short_are_passed_over():
    whole = ethernet(segment(CLIENT, BROKER, 1, b"abc"))
    other = [bytes(14), whole[:12] + b"\x08\x06" + whole[14:], whole[:23] + b"\x11" + whole[24:], b"", whole[:40]]
    assert streams(capture([*other, whole])) == [("10.0.0.1:50000, 10.0.0.2:9092", [(Side.UNKNOWN, b"abc")])]


def test_what_is_no_capture_is_refused():
    for data in (b"", b"\xd4\xc3\xb2", b"0102", b"\xd4\xc3\xb2\xa1", capture([], link=189)):
        with pytest.raises(DecodeError):
            read_pcap(data)
    assert read_pcap(capture([ethernet(segment(CLIENT, BROKER, 1, b"abc"))])[:60]) == []


def test_any_bytes_are_read_or_refused():
    draw = random.Random(5)
    whole = bytearray(capture([ethernet(segment(CLIENT, BROKER, 1, b"abc")) for _ in range(3)]))
    for _ in range(3000):
        tampered = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            tampered[draw.randrange(24, len(whole))] = draw.randrange(256)
        read_pcap(bytes(tampered))
