"""The command python -m protocol_lib decode."""

import json
import subprocess
import sys
from pathlib import Path

FRAMES = [json.loads(line) for line in Path(__file__).with_name("golden_frames.jsonl").read_text().splitlines()]


def decode(*arguments, given=""):
    command = [sys.executable, "-m", "protocol_lib", "decode", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


def test_frames_of_real_clients_and_a_real_broker_are_understood(tmp_path):
    dump = tmp_path / "dump.txt"
    dump.write_text("\n\n".join(f"{frame['request']}\n\n{frame['response']}" for frame in FRAMES))
    done = decode(str(dump))
    assert (done.returncode, done.stderr) == (0, "")
    heads = [line.split(", ") for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert [(head[0].partition(" ")[2], head[1], head[-1]) for head in heads] == [
        (f"{said} {frame['api']} {frame['version']}", f"correlation id {frame['correlation_id']}", f"{size // 2} bytes")
        for frame in FRAMES
        for said, size in (("> request", len(frame["request"])), ("< response", len(frame["response"])))
    ]


def test_from_standard_input():
    done = decode(given="# asked\n> 0000000a 0012 0000 00000001 ffff\n")
    assert done.stdout == "1 > request ApiVersions 0, correlation id 1, no client id, 10 bytes\n"
    assert done.returncode == 0


def test_what_cannot_be_read():
    assert (decode(given="hello").returncode, decode(given="hello").stdout) == (1, "")
    assert decode("/nonexistent").returncode == 1
    nothing = decode(given="< 00000004 00000007")
    assert nothing.stdout == ("1 not understood: no request with correlation id 7 waits for it\n    00000007\n")
    assert nothing.returncode == 1
    assert decode(given="").stderr == "there are no frames in it\n"
    newer = decode(given="\n\r\r\n\x1c\0\0\0")
    assert (newer.returncode, newer.stdout) == (1, "")
    assert "editcap -F pcap" in newer.stderr
    run = [sys.executable, "-m", "protocol_lib"]
    assert subprocess.run(run, capture_output=True, check=False).returncode == 2
