"""Descriptors of the text of a .proto file.

protoc compiles the text. It runs as a process with limits, in a folder with the references of the schema alone. Any
other import is an error, but for Google's own types.

Confluent's serializers for Python and Go register base64 of a FileDescriptorProto in place of a text. Confluent's
registry makes a text of it, while Apicurio 3.0.9 keeps it. protoc reads these as well.

Apicurio's serializers for Java write a map as the messages that it is stored as, with `option map_entry = true`. protoc
refuses that in a text, though not in descriptors: a text without the option becomes descriptors, and these get it.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

_PROTOC_BYTES: Final = 160 * 1024 * 1024
_PROTOC_S: Final = 1
_MAIN: Final = "schema.proto"
_OF_GOOGLE: Final = "google/protobuf/"
_MAP_ENTRY: Final = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
#: An option that no schema of records needs, in place of the one of maps.
_MARK: Final = "no_standard_descriptor_accessor"


class ProtocError(ValueError):
    """A text that is refused; the message says why."""


def descriptors(text: str, references: Sequence[tuple[str, str]]) -> tuple[bytes, str]:
    """Return a FileDescriptorSet as bytes, and the name of the text's file in it. Raises ProtocError."""
    try:
        return _compiled(text, references)
    except ProtocError:
        if not any(map(_MAP_ENTRY.search, (text, *(each for _, each in references)))):
            raise
    content, main = _compiled(_marked(text), [(name, _marked(each)) for name, each in references])
    files = _with_maps(content)
    return _compiled(files.pop(main), list(files.items()))  # which checks that they are maps


def _compiled(text: str, references: Sequence[tuple[str, str]]) -> tuple[bytes, str]:
    package = importlib.util.find_spec("grpc_tools")
    if package is None or package.origin is None:
        raise ProtocError("Protobuf needs protoc: install grpcio-tools")
    main = _MAIN
    while main in dict(references):
        main = f"_{main}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = _written(folder, [*references, (main, text)])
        except (OSError, UnicodeEncodeError):
            raise ProtocError("the names of its references cannot be those of files") from None
        target, ready = Path(folder, "\x7f.descriptors"), Path(folder, "\x7f.ready")
        ready.write_bytes(made)
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-m", "grpc_tools.protoc", f"--proto_path={folder}"),
                *(f"--proto_path={Path(package.origin).parent / '_proto'}", "--include_imports"),
                *(f"--descriptor_set_in={ready}", f"--descriptor_set_out={target}", main),
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
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


def _marked(text: str) -> str:
    return _MAP_ENTRY.sub(f"option {_MARK} = true;", text)


def _with_maps(content: bytes) -> dict[str, str]:
    """Return the files of a FileDescriptorSet in base64, by name, in which the messages with the mark are of maps."""
    from google.protobuf import descriptor_pb2  # few schemas need it

    def restore(messages: Iterable[descriptor_pb2.DescriptorProto]) -> None:
        for each in messages:
            if getattr(each.options, _MARK):
                each.options.ClearField(_MARK)
                each.options.map_entry = True
            restore(each.nested_type)

    files = [
        file
        for file in descriptor_pb2.FileDescriptorSet.FromString(content).file
        if not file.name.startswith(_OF_GOOGLE)
    ]
    for file in files:
        restore(file.message_type)
    return {file.name: base64.b64encode(file.SerializeToString()).decode() for file in files}


def _written(folder: str, files: Sequence[tuple[str, str]]) -> bytes:
    """Write texts into a folder; return the descriptors that others are already, as a FileDescriptorSet."""
    made = b""
    for name, content in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not name.isprintable() or name.startswith(_OF_GOOGLE):
            raise ProtocError(f"a reference has the name {name[:128]!r}")
        if serialized := _serialized(content):
            made += _field(serialized + _field(name.encode()))  # the last name of a file counts
            continue
        file = Path(folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return made


def _serialized(content: str) -> bytes:
    """Return the FileDescriptorProto that a content is in base64; none for a text."""
    try:
        return base64.b64decode(content, validate=True)
    except ValueError:
        return b""


def _field(content: bytes) -> bytes:
    """Return bytes as the field 1 of a message: a file of a set, and the name of a file."""
    length, size = bytearray(), len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return b"\x0a" + bytes(length) + bytes((size,)) + content


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_PROTOC_S, _PROTOC_S))
    resource.setrlimit(resource.RLIMIT_DATA, (_PROTOC_BYTES, _PROTOC_BYTES))
