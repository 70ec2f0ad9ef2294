"""The examples of protocol-lib's README run as they are printed, the client against either broker."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "protocol-lib" / "README.md").read_text()
EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```python\n(.*?)```", README, flags=re.DOTALL))


async def run(code: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def test_decode():
    assert await run(EXAMPLES["decode"]) == "3 12 7 me\nMetadataRequest orders True\n"


async def test_encode():
    assert await run(EXAMPLES["encode"]) == ""


async def test_client(broker):
    topic = broker.name("apples")
    code = EXAMPLES["client"].replace("localhost:9092", broker.bootstrap).replace('"apples"', f'"{topic}"')
    placed, read = (await run(code)).splitlines()
    assert re.fullmatch(rf"RecordMetadata\(topic='{topic}', partition=\d, offset=0, timestamp=\d+\)", placed)
    assert read == "[(b'alice', b'3 apples')]"


def test_each_example_takes_ten_lines_at_most():
    lines = {name: len([line for line in code.splitlines() if line.strip()]) for name, code in EXAMPLES.items()}
    assert sorted(lines) == ["client", "decode", "encode"]
    assert max(lines.values()) <= 10
