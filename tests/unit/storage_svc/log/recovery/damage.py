"""The one segment of a small log: its file, the places of its batches, flipped bits, and what was copied aside."""

from __future__ import annotations

from pathlib import Path

Stored = list[tuple[int, bytes]]


def log_file(path: Path, base: int = 0) -> Path:
    return path / "t-0" / f"{base:020d}.log"


def quarantined(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in (path / "t-0" / "quarantine").glob("*")}


def position_of(stored: Stored, number: int) -> int:
    return sum(len(batch) for _, batch in stored[:number])


def flipped(data: bytes, at: int, mask: int = 4) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def batches(stored: Stored, *but: int) -> bytes:
    """Return the bytes of all batches but those of these numbers."""
    return b"".join(batch for number, (_, batch) in enumerate(stored) if number not in but)
