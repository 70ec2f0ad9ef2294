"""Programs of other languages' clients, built outside of the sources: each folder once in a session."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "conformance"
#: Number of tries of a build, which fetches the packages of a program: a server may not answer, or break off.
TRIES = 3

_MAVEN = ("mvn", "--quiet", "--batch-mode", "process-classes")
#: Each program gets the name of its folder.
_GO = ("go", "build", "-mod=readonly", "-o", "bin/", "./...")
_NPM = ("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
_PIP = ("sh", "-c", '"$0" -m venv .venv && .venv/bin/pip install --quiet -r requirements.txt', sys.executable)

#: Commands that build all programs of a folder.
_COMMANDS = {"java": _MAVEN, "streams": _MAVEN, "franz-go": _GO, "sarama": _GO, "kafkajs": _NPM, "old-python": _PIP}
_COMMANDS["sarama-1.43"] = _GO
_COMMANDS["schemaregistry-js"] = _NPM
_COMMANDS["apicurio-serdes"] = _MAVEN
#: Tools of a folder's programs, to be built and to be run.
TOOLS = {
    "java": ("java", "javac", "mvn"),
    "streams": ("java", "javac", "mvn"),
    "apicurio-serdes": ("java", "javac", "mvn"),
    "franz-go": ("go",),
    "sarama": ("go",),
    "sarama-1.43": ("go",),
    "kafkajs": ("node", "npm"),
    "schemaregistry-js": ("node", "npm"),
}


def java_program(name: str, level: str = "off") -> tuple[str, ...]:
    """Return the command of a class in a built folder, which writes log lines from this level on."""
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dorg.slf4j.simpleLogger.defaultLogLevel={level}")
    return ("java", *options, "-cp", "target/classes:target/lib/*", name)


@functools.cache
def built(name: str) -> Path:
    """Return the built copy of the folder `name`, which is built once for each content of its files.

    Processes of one session share the copy. To build it again would take files away from another one: `npm ci` begins
    with the removal of all modules.
    """
    folder = BUILD / name
    BUILD.mkdir(parents=True, exist_ok=True)
    content = _digest(HERE / name)
    with (BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark = folder / ".built"
        if mark.exists() and mark.read_text() == content:
            return folder
        shutil.copytree(HERE / name, folder, dirs_exist_ok=True)
        for attempt in range(TRIES):
            time.sleep(5 * attempt)
            done = subprocess.run(_COMMANDS[name], cwd=folder, capture_output=True, text=True, timeout=500)
            if done.returncode == 0:
                break
        assert done.returncode == 0, f"{name} was not built:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        mark.write_text(content)
    return folder


def _digest(folder: Path) -> str:
    """Return a hash of the names and contents of all files."""
    found = hashlib.sha256(repr(_COMMANDS[folder.name]).encode())
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        found.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()
