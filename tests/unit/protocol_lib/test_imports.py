"""The cost of importing the package, and the modules it must never import."""

import subprocess
import sys

IMPORT_TIMES = [sys.executable, "-X", "importtime", "-c"]
#: Every module of the package but its client, and the modules for input and output that they imported.
EVERYTHING = """
import importlib, pathlib, sys
import protocol_lib
root = pathlib.Path(protocol_lib.__file__).parent
for path in root.rglob("*.py"):
    parts = path.relative_to(root).with_suffix("").parts
    if parts[0] != "client" and parts[-1] != "__init__":
        importlib.import_module(".".join(("protocol_lib", *parts)))
print(*(name for name in ("asyncio", "ssl", "grpc", "cramjam", "protocol_lib.client") if name in sys.modules))
"""


def test_nothing_but_the_client_talks_to_the_world():
    done = subprocess.run([sys.executable, "-c", EVERYTHING], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_package_alone_imports_within_60_ms():
    """One of several times: other tests run at the same time."""

    def took_us() -> int:
        done = subprocess.run([*IMPORT_TIMES, "import protocol_lib"], capture_output=True, text=True, check=True)
        line = next(line for line in done.stderr.splitlines() if line.endswith("| protocol_lib"))
        return int(line.split("|")[1])

    assert any(took_us() < 60_000 for _ in range(20))
