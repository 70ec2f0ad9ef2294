"""Protobuf by the text of a .proto file, as JSON in proto3's own mapping: 64-bit numbers are texts in it.

protoc compiles the text. It runs as a process with limits, in a folder with the references of the schema alone. Any
other import is an error, but for Google's own types. Its descriptors make the messages.
"""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from admin_api.registry.calls import RefusedError

_INDEXES_MAX = 64
_PROTOC_BYTES = 160 * 1024 * 1024
_PROTOC_S = 1
_MAIN = "schema.proto"


class ProtobufSchema:
    def __init__(self, files: descriptor_pb2.FileDescriptorSet, main: str) -> None:
        self._pool = DescriptorPool()
        for file in files.file:
            self._pool.AddSerializedFile(file.SerializeToString())
        self._file: Any = next(file for file in files.file if file.name == main)
        self._classes: dict[tuple[int, ...], Any] = {}

    def decode(self, payload: bytes) -> str:
        indexes, at = read_indexes(payload)
        message = self._class(tuple(indexes))()
        message.ParseFromString(payload[at:])
        return json_format.MessageToJson(message, indent=None, ensure_ascii=False, descriptor_pool=self._pool)

    def encode(self, text: str) -> bytes:
        message = self._class((0,))()
        json_format.Parse(text, message, descriptor_pool=self._pool)
        return b"\0" + bytes(message.SerializeToString())

    def _class(self, indexes: tuple[int, ...]) -> Any:
        """Return the class of the message at these indexes: of the file, then of each message in it."""
        if indexes not in self._classes:
            names, messages = [], self._file.message_type
            for index in indexes:
                if not 0 <= index < len(messages):
                    raise RefusedError(f"the schema has no message {list(indexes)}")
                names.append(messages[index].name)
                messages = messages[index].nested_type
            package = [self._file.package] if self._file.package else []
            found = self._pool.FindMessageTypeByName(".".join(package + names))
            self._classes[indexes] = GetMessageClass(found)
        return self._classes[indexes]


def read_indexes(data: bytes) -> tuple[list[int], int]:
    """Return the indexes of a message, and the number of their bytes."""
    count, at = _varint(data, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= _INDEXES_MAX:
        raise RefusedError(f"{count} indexes of a message")
    found = []
    for _ in range(count):
        index, at = _varint(data, at)
        found.append(index)
    return found, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise RefusedError("it ends within the indexes of its message")
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise RefusedError("an index of a message has too many bytes")


def compiled(text: str, references: list[tuple[str, str]]) -> ProtobufSchema:
    package = importlib.util.find_spec("grpc_tools")
    if package is None or package.origin is None:
        raise RefusedError("Protobuf needs protoc: install grpcio-tools")
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
                raise RefusedError(f"a reference has the name {name!r}")
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
            raise RefusedError("protoc takes too long for it")
        if done.returncode:
            raise RefusedError(f"protoc: {(done.stderr or 'refused').splitlines()[0].replace(folder, '')}")
        files = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())
    return ProtobufSchema(files, main)


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_PROTOC_S, _PROTOC_S))
    resource.setrlimit(resource.RLIMIT_DATA, (_PROTOC_BYTES, _PROTOC_BYTES))
