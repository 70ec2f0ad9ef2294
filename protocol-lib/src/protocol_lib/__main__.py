"""python -m protocol_lib decode [FILE]: frames that were recorded, made readable.

FILE, else standard input, is a capture of tcpdump (pcap) or hexadecimal text as dump.hexdump describes it. Exit status:
0; 1 when the dump cannot be read or none of its frames understood; 2 for wrong use.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from protocol_lib.api import APIS
from protocol_lib.dump.conversation import Request, Said, Unknown, understand
from protocol_lib.dump.hexdump import read_hexdump
from protocol_lib.dump.pcap import is_pcap, is_pcapng, read_pcap
from protocol_lib.dump.readable import readable
from protocol_lib.dump.stream import Connection
from protocol_lib.errors import DecodeError

_UNKNOWN_BYTES_SHOWN: Final = 64


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2 or arguments[0] != "decode":
        print("usage: python -m protocol_lib decode [FILE]", file=sys.stderr)
        return 2
    try:
        data = Path(arguments[1]).read_bytes() if len(arguments) == 2 else sys.stdin.buffer.read()
        connections = _connections(data)
    except (OSError, DecodeError) as fault:
        print(fault, file=sys.stderr)
        return 1
    understood = said_at_all = 0
    for connection in connections:
        if connection.name:
            print(f"connection {connection.name}")
        for number, said in enumerate(understand(connection), 1):
            said_at_all += 1
            understood += not isinstance(said, Unknown)
            print(f"{number} {_headline(said)}")
            for line in _lines(said):
                print(f"    {line}")
    if not said_at_all:
        print("there are no frames in it", file=sys.stderr)
    return 0 if understood else 1


def _connections(data: bytes) -> list[Connection]:
    if is_pcap(data):
        return read_pcap(data)
    if is_pcapng(data):
        raise DecodeError(
            "a capture of the pcapng format; `editcap -F pcap FROM TO` writes it as one that is read here"
        )
    try:
        return [read_hexdump(data.decode())]
    except UnicodeDecodeError as fault:
        raise DecodeError("neither a capture of libpcap nor text") from fault


def _headline(said: Said) -> str:
    if isinstance(said, Unknown):
        return f"not understood: {said.reason}"
    header = said.header if isinstance(said, Request) else said.request
    version = header.api_version if isinstance(said, Request) else said.version
    what = f"{APIS[header.api_key].name} {version}, correlation id {header.correlation_id}"
    if isinstance(said, Request):
        client = "no client id" if header.client_id is None else f'client id "{header.client_id}"'
        return f"> request {what}, {client}, {said.size} bytes"
    return f"< response {what}, {said.size} bytes"


def _lines(said: Said) -> Iterator[str]:
    if isinstance(said, Unknown):
        shown = said.data[:_UNKNOWN_BYTES_SHOWN].hex(" ", 4)
        return iter([f"{shown}{'…' * (len(said.data) > _UNKNOWN_BYTES_SHOWN)}"] if shown else [])
    version = said.header.api_version if isinstance(said, Request) else said.version
    return readable(said.body, version)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
