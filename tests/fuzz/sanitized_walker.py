"""`make fuzz`: the compiled walker of records under AddressSanitizer, with changed bodies in buffers of every kind.

`python tests/fuzz/sanitized_walker.py [SECONDS]` compiles it into a temporary folder with gcc's libasan, and walks for
so many seconds in another process: a read outside of a buffer ends that with a report. Without gcc or its libasan the
run is skipped, and says why. Each buffer is a separate allocation (PYTHONMALLOC=malloc), so that the byte after it
is watched.
"""

import importlib.util
import mmap
import os
import random
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 20
TOP = Path(__file__).parents[2]
FLAGS = ("-fsanitize=address", "-O1", "-g", "-w")


def bodies(draw: random.Random):
    """Yield bodies of records, changed or cut, and the number of records that they are said to hold."""
    from protocol_lib.records.record import Record, write_record

    def text() -> bytes | None:
        return draw.choice((None, b"", draw.randbytes(draw.randrange(9)), draw.randbytes(draw.randrange(300))))

    while True:
        pieces: list[bytes] = []
        count = draw.randrange(6)
        for index in range(count):
            headers = tuple((draw.choice(("", "name", "\udcff")), text()) for _ in range(draw.choice((0, 0, 1, 3))))
            write_record(Record(index, draw.randrange(2**40), text(), text(), headers), 0, 0, pieces)
        body = bytearray(b"".join(pieces))
        for _ in range(draw.randrange(4)):
            if body:
                body[draw.randrange(len(body))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        if draw.random() < 0.3:
            del body[draw.randrange(len(body) + 1) :]
        if draw.random() < 0.1:
            at = draw.randrange(len(body) + 1)
            body[at:at] = b"\xff" * draw.randrange(11)
        yield bytes(body), count + draw.choice((0, 0, 0, 1, 1000))


def buffers(body: bytes, folder: Path):
    """Yield the bytes as a buffer of each kind; nothing follows them in its memory, but for the mapped file's page."""
    yield body
    yield bytearray(body)
    yield memoryview(body)
    yield memoryview(bytearray(b"x" + body))[1:]
    if body:
        path = folder / "body"
        path.write_bytes(body)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped


def walk(module: Path, seconds: float) -> int:
    """Walk in this process, which has libasan; return the number of walks."""
    from protocol_lib.errors import MalformedRecord
    from protocol_lib.records.record import Record

    spec = importlib.util.spec_from_file_location("protocol_lib.records._walker", module)
    assert spec is not None
    assert spec.loader is not None
    compiled = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compiled)
    assert compiled.COMPILED_FROM
    draw = random.Random()
    walks = 0
    until = time.monotonic() + seconds
    for body, count in bodies(draw):
        for buffer in buffers(body, module.parent):
            for method in ("check", "read", "scan"):
                columns: tuple[list[object], ...] = ([], [], [], [], [])
                walker = compiled.RecordWalker(buffer, count, 0, 0)
                walks += 1
                try:
                    while True:
                        steps = draw.choice((1, 2, 5, 10**9))
                        if method == "check":
                            is_left = walker.check(steps)
                        elif method == "read":
                            is_left = walker.read(Record, columns[0], steps)
                        else:
                            is_left = walker.scan(columns, steps)
                        if not is_left:
                            break
                except MalformedRecord:
                    pass
                del walker
        if time.monotonic() > until:
            return walks
    raise AssertionError


def main(seconds: float) -> int:
    try:
        libasan = subprocess.run(
            ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as fault:
        print(f"sanitized walker: SKIPPED, there is no gcc ({fault})")
        return 0
    if not Path(libasan).is_absolute():
        print("sanitized walker: SKIPPED, gcc has no libasan")
        return 0
    with tempfile.TemporaryDirectory(prefix="millrace-sanitized-") as folder:
        compiled = runpy.run_path(str(TOP / "hatch_build.py"))["compiled"]
        module = compiled(TOP, Path(folder), FLAGS)
        environment = {
            **os.environ,
            "LD_PRELOAD": libasan,
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",
        }
        command = [sys.executable, __file__, "--walk", str(module), str(seconds)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"sanitized walker: FAILED (exit code {done.returncode})", done.stdout, done.stderr[-8000:], sep="\n")
        return 1
    print(f"sanitized walker: {done.stdout.strip()}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--walk"]:
        print(f"{walk(Path(sys.argv[2]), float(sys.argv[3])):,} walks, no read outside of a buffer")
    else:
        sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS))
