"""The checked-in stubs equal those that the .proto files generate."""

import os
import subprocess
import sys
from pathlib import Path

CONTRACT = Path(__file__).parents[3] / "services" / "contract"


def test_stubs_are_up_to_date(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, CONTRACT / "generate.py", tmp_path]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    generated = {file.name: file.read_text() for file in tmp_path.glob("*_pb2*")}
    checked_in = {file.name: file.read_text() for file in (CONTRACT / "src" / "broker_contract").glob("*_pb2*")}
    assert generated.keys() == checked_in.keys()
    for name, text in generated.items():
        assert text == checked_in[name], f"{name} differs: run services/contract/generate.py"
