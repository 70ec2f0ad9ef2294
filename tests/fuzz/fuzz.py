"""`make fuzz`: atheris changes inputs by the code they reach, for a number of executions of each decoder.

`python tests/fuzz/fuzz.py [RUNS [DECODER]]` starts from corpus/ and keeps its finds in build/fuzz. When a decoder
raises a forbidden error, takes more than SECONDS_MAX of processor time (HANGING_SECONDS of any) or more memory than
MEGABYTES_MAX, it fails and names the input.
"""

import gc
import subprocess
import sys
import time
from pathlib import Path
from types import FunctionType

RUNS = 100_000
INPUT_BYTES_MAX = 4_096
SECONDS_MAX = 5
HANGING_SECONDS = 60
MEGABYTES_MAX = 2_048
CORPUS = Path(__file__).with_name("corpus")
FOUND = Path(__file__).parents[2] / "build" / "fuzz"


def fuzz(name: str, runs: int) -> None:
    """Run one decoder. libFuzzer ends the process itself, so the report comes with the last execution."""
    import atheris

    sys.path.append(str(Path(__file__).parents[2]))  # for `tests`
    with atheris.instrument_imports(include=["protocol_lib", "service_chassis", "hpack"]):
        import decoders
    if name in ("request", "response"):
        decoders.compile_every_decoder()
    for found in gc.get_objects():  # the functions made from declared messages come from no import
        if isinstance(found, FunctionType) and found.__code__.co_filename.startswith("<kafka codec"):
            atheris.instrument_func(found)
    executions = valid = 0
    slowest_s, slowest = 0.0, b""

    def one(data: bytes) -> None:
        nonlocal executions, valid, slowest_s, slowest
        begin = time.thread_time()  # the time of other processes is not the input's
        valid += decoders.decode_one(name, data)
        seconds = time.thread_time() - begin
        executions += 1
        if seconds > SECONDS_MAX:
            raise TimeoutError(f"{seconds:.1f} s of processor time")
        if seconds > slowest_s:
            slowest_s, slowest = seconds, data
        if executions == runs:
            took = f"{slowest_s * 1e3:6.1f} ms for {len(slowest):5,} bytes"
            print(f"{name:18}{executions:>10,}{valid:>10,} valid, slowest {took}: {slowest.hex()[:60]}", flush=True)

    kept = FOUND / name
    kept.mkdir(parents=True, exist_ok=True)
    options = {
        "runs": runs,
        "max_len": INPUT_BYTES_MAX,
        "timeout": HANGING_SECONDS,
        "rss_limit_mb": MEGABYTES_MAX,
        "artifact_prefix": f"{FOUND}/{name}-",
    }
    arguments = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, str(kept), str(CORPUS / name)], one)
    atheris.Fuzz()


def main(runs: int) -> int:
    FOUND.mkdir(parents=True, exist_ok=True)
    failed = []
    names = sorted(path.name for path in CORPUS.iterdir())
    for name in names:
        log = FOUND / f"{name}.log"
        with log.open("wb") as errors:
            command = [sys.executable, __file__, str(runs), name]
            done = subprocess.run(command, stderr=errors, check=False)
        if done.returncode:
            failed.append(name)
            print(f"{name}: FAILED", *log.read_text(errors="replace").splitlines()[-30:], sep="\n  ")
    print(f"{runs * (len(names) - len(failed)):,} executions")
    return bool(failed)


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    if len(sys.argv) > 2:
        fuzz(sys.argv[2], wanted)
    else:
        sys.exit(main(wanted))
