"""Descriptors of the text of a .proto file.

protoc compiles the text. It runs as a process with limits, in a folder with the references of the schema alone. Any
other import is an error, but for Google's own types.
"""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

_PROTOC_BYTES: Final = 160 * 1024 * 1024
_PROTOC_S: Final = 1
_MAIN: Final = "schema.proto"


class ProtocError(ValueError):
    """A text that is refused; the message says why."""


def descriptors(text: str, references: Sequence[tuple[str, str]]) -> tuple[bytes, str]:
    """Return a FileDescriptorSet as bytes, and the name of the text's file in it. Raises ProtocError."""
    package = importlib.util.find_spec("grpc_tools")
    if package is None or package.origin is None:
        raise ProtocError("Protobuf needs protoc: install grpcio-tools")
    main = _MAIN
    while main in dict(references):
        main = f"_{main}"
    with tempfile.TemporaryDirectory() as folder:
        for name, content in [*references, (main, text)]:
            path = PurePosixPath(name)
            if (
                path.is_absolute()
                or ".." in path.parts
                or not name.isprintable()
                or name.startswith("google/protobuf/")
            ):
                raise ProtocError(f"a reference has the name {name!r}")
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        target = Path(folder, "\x7f.descriptors")
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-m", "grpc_tools.protoc", f"--proto_path={folder}"),
                *(f"--proto_path={Path(package.origin).parent / '_proto'}", "--include_imports"),
                *(f"--descriptor_set_out={target}", main),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            preexec_fn=_limited,
        )
        if done.returncode < 0:
            raise ProtocError("protoc takes too long for it")
        if done.returncode:
            raise ProtocError(f"protoc: {(done.stderr or 'refused').splitlines()[0].replace(folder, '')}")
        return target.read_bytes(), main


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_PROTOC_S, _PROTOC_S))
    resource.setrlimit(resource.RLIMIT_DATA, (_PROTOC_BYTES, _PROTOC_BYTES))
