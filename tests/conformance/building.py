"""Programs of other languages' clients, built outside of the sources."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "conformance"
#: Number of tries of a build, which fetches the packages of a program: a server may not answer, or break off.
TRIES = 3


def built(source: str, name: str, command: Sequence[str]) -> Path:
    """Return the folder `name` with the output of the command on a copy of the folder `source`."""
    folder = BUILD / name
    shutil.copytree(HERE / source, folder, dirs_exist_ok=True)
    for attempt in range(TRIES):
        time.sleep(5 * attempt)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500)
        if done.returncode == 0:
            break
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return folder
