"""Hexadecimal text, as people and tools write it."""

import subprocess
from shutil import which

import pytest
from protocol_lib.dump.hexdump import read_hexdump
from protocol_lib.dump.stream import Side
from protocol_lib.errors import DecodeError

FRAME = bytes(range(4, 44))


@pytest.mark.parametrize(
    "text",
    [
        FRAME.hex(),
        FRAME.hex(" "),
        FRAME.hex(":", 2),
        f"# a remark\n{FRAME[:9].hex()}\n  {FRAME[9:].hex(' ', -4)}\n\n",
        f"{FRAME[:2].hex()}  {FRAME[2:].hex()}",
        "00000000: 0405 0607 0809 0a0b 0c0d 0e0f 1011 1213  ................\n"
        '00000010: 1415 1617 1819 1a1b 1c1d 1e1f 2021 2223  ............ !"#\n'
        "00000020: 2425 2627 2829 2a2b                      $%&'()*+\n",
        "00000000  04 05 06 07 08 09 0a 0b  0c 0d 0e 0f 10 11 12 13  |................|\n"
        '00000010  14 15 16 17 18 19 1a 1b  1c 1d 1e 1f 20 21 22 23  |............ !"#|\n'
        "00000020  24 25 26 27 28 29 2a 2b                           |$%&'()*+|\n"
        "00000028\n",
    ],
)
def test_one_frame(text):
    (piece,) = read_hexdump(text).pieces
    assert piece.data == FRAME
    assert piece.side is Side.UNKNOWN


@pytest.mark.parametrize("command", [["xxd"], ["hexdump", "-C"]])
def test_what_tools_write(command):
    if which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    written = subprocess.run(command, input=FRAME * 3, capture_output=True, check=True).stdout.decode()
    (piece,) = read_hexdump(written).pieces
    assert piece.data == FRAME * 3


def test_an_empty_line_a_direction_and_an_offset_of_zero_begin_a_piece():
    pieces = read_hexdump("> 0102\n0304\n< 05\n\n06\n00000000: 0708\n00000002: 09\n00000000: 0a\n").pieces
    assert [(piece.side, piece.data.hex()) for piece in pieces] == [
        (Side.CLIENT, "01020304"),
        (Side.BROKER, "05"),
        (Side.UNKNOWN, "06"),
        (Side.UNKNOWN, "070809"),
        (Side.UNKNOWN, "0a"),
    ]


@pytest.mark.parametrize(("text", "line"), [("01\n0x", 2), ("012", 1), ("hello", 1), ("> 01 0g", 1)])
def test_what_is_not_hexadecimal_is_named(text, line):
    with pytest.raises(DecodeError, match=f"^line {line} is not hexadecimal"):
        read_hexdump(text)
