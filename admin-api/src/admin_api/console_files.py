"""The files of the console, as they lie in `static/console`: no build step, and nothing from elsewhere.

A file is read when it is first requested, and again after it has changed on disk. It stays in memory with its hash,
which is the ETag, and with its gzip form where that is shorter. Both are made in a thread.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "static" / "console"
INDEX = "index.html"
#: The files that are served, by the end of their names. Licences and lists of vendored files are not.
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
#: Bytes of one file. The largest is a vendored one of 51 kB.
FILE_BYTES_MAX = 1024 * 1024
_PATH = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}/){0,4}[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class File:
    """One file. Its gzip form is empty if it would not be shorter."""

    media_type: str
    plain: bytes
    gzipped: bytes
    digest: str

    def etag(self, *, gzipped: bool) -> str:
        """Return the strong validator of one of the two forms (RFC 9110, 8.8.3)."""
        return f'"{self.digest}{"-gzip" if gzipped else ""}"'


class ConsoleFiles:
    """The files of one server. The event loop owns it."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        #: Path below the folder -> time of change and size, and the file with them. Only what exists has an entry.
        self._read: dict[str, tuple[tuple[int, int], File]] = {}

    async def find(self, path: str) -> File | None:
        """Return the file of a path below the folder; None if there is none to serve."""
        media_type = MEDIA_TYPES.get(Path(path).suffix)
        if media_type is None or not _PATH.fullmatch(path):  # mutant: console-folder-alone
            return None
        found = self._folder / path
        try:
            seen = await asyncio.to_thread(found.stat)
            changed = seen.st_mtime_ns, seen.st_size  # wall clock: only compared with what it was before
            known = self._read.get(path)
            if known is None or known[0] != changed:
                if seen.st_size > FILE_BYTES_MAX:
                    return None
                known = self._read[path] = changed, await asyncio.to_thread(_read, found, media_type)
        except OSError:
            return None
        return known[1]


def _read(path: Path, media_type: str) -> File:
    plain = path.read_bytes()
    gzipped = gzip.compress(plain, 9, mtime=0)
    return File(
        media_type, plain, gzipped if len(gzipped) < len(plain) else b"", hashlib.sha256(plain).hexdigest()[:32]
    )
