"""The program that decodes and encodes by schemas, in a separate process: `codec` starts it, and talks over pipes.

It trusts neither schemas nor data. Its memory is limited. The kernel ends it when a call needs too much processor
time, so no library has to notice. It opens no connection.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from admin_api.registry.calls import (
    ANSWER,
    BAD_SCHEMA,
    DECODE,
    DONE,
    ENCODE,
    FORGET,
    LOAD,
    NAME,
    PREPARE,
    REFUSED,
    REQUEST,
    TEXT,
    BadSchemaError,
)

#: The module of each type of schema.
MODULES = {
    "AVRO": "admin_api.registry.avro",
    "JSON": "admin_api.registry.json_schema",
    "PROTOBUF": "admin_api.registry.protobuf",
}
_REASON_LENGTH_MAX = 300


class Compiled(Protocol):
    """A schema that is ready for use. Methods raise calls.RefusedError, or what the library of its type raises."""

    def decode(self, payload: bytes) -> str: ...

    def encode(self, text: str) -> bytes: ...

    def name(self) -> str: ...


def main() -> None:
    processor_s, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    read, write = sys.stdin.buffer.read, sys.stdout.buffer
    schemas: dict[int, Compiled] = {}
    while len(head := read(REQUEST.size)) == REQUEST.size:
        operation, key, length = REQUEST.unpack(head)
        body = read(length)
        if operation != PREPARE:
            signal.setitimer(signal.ITIMER_PROF, processor_s)
        status, answer = _answer(schemas, operation, key, body)
        signal.setitimer(signal.ITIMER_PROF, 0)
        write.write(ANSWER.pack(status, len(answer)) + answer)
        write.flush()


def _answer(schemas: dict[int, Compiled], operation: int, key: int, body: bytes) -> tuple[int, bytes]:
    status = BAD_SCHEMA if operation == LOAD else REFUSED
    try:
        return DONE, _done(schemas, operation, key, body)
    except RecursionError:
        reason = "it nests too deep"
    except MemoryError:
        reason = "it needs more memory than is allowed"
    except Exception as error:  # of a library: whatever it raises for such input
        reason = " ".join(str(error).split()) or type(error).__name__
        status = BAD_SCHEMA if isinstance(error, BadSchemaError) else status
    return status, reason[:_REASON_LENGTH_MAX].rstrip(".").encode(errors="replace")


def _done(schemas: dict[int, Compiled], operation: int, key: int, body: bytes) -> bytes:
    if operation == PREPARE:
        import_module(MODULES[body.decode()])
    elif operation == LOAD:
        kind, text, *rest = _texts(body)
        compiled: Callable[[str, list[tuple[str, str]]], Compiled] = import_module(MODULES[kind]).compiled
        schemas[key] = compiled(text, list(zip(rest[::2], rest[1::2], strict=True)))
    elif operation == FORGET:
        schemas.pop(key, None)
    elif operation == DECODE:
        return schemas[key].decode(body).encode()
    elif operation == ENCODE:
        return schemas[key].encode(body.decode())
    elif operation == NAME:
        return schemas[key].name().encode()
    return b""


def _texts(body: bytes) -> list[str]:
    found, at = [], 0
    while at < len(body):
        (length,) = TEXT.unpack_from(body, at)
        found.append(body[at + TEXT.size : at + TEXT.size + length].decode())
        at += TEXT.size + length
    return found


if __name__ == "__main__":
    main()
