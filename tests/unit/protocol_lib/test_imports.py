"""What importing the package costs, and what it must never pull in."""

import subprocess
import sys

IMPORT_TIMES = [sys.executable, "-X", "importtime", "-c"]
EVERYTHING = (
    "import protocol_lib.api, protocol_lib.codec, protocol_lib.headers, protocol_lib.framing, "
    "protocol_lib.consumer_protocol, protocol_lib.records.batch, protocol_lib.records.control"
)


def test_nothing_that_talks_to_the_world_is_imported():
    code = f"import sys\n{EVERYTHING}\nprint(*(name for name in ('asyncio', 'grpc', 'cramjam') if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_package_alone_imports_within_60_ms():
    times = []
    for _ in range(3):
        done = subprocess.run([*IMPORT_TIMES, "import protocol_lib"], capture_output=True, text=True, check=True)
        line = next(line for line in done.stderr.splitlines() if line.endswith("| protocol_lib"))
        times.append(int(line.split("|")[1]))
    assert min(times) < 60_000
