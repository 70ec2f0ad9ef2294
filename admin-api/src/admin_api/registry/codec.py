"""The process that decodes and encodes by schemas: one, started with the first call and replaced when it ends.

    answers = await codec.run([Call(DECODE, schema, payload), …])      the answer of each, or a CodecError

Calls are written together and answered in order, so that a page of records costs one trip. `program` is what runs
there. The kernel ends it when a call needs more processor time or memory than its limits. The call that was being
answered then fails, and a new process makes those after it: for REPLACED_MAX times in one run. A run has RUN_S on the
clock, and as long to wait for those before it. Answers beyond its ANSWERS_BYTES_MAX are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import OrderedDict
from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from service_chassis.schema_registry.schema import Schema

from admin_api.registry.calls import ANSWER, BAD_SCHEMA, DONE, FORGET, LOAD, PREPARE, REQUEST, TEXT

#: Seconds of processor time of one call, and bytes of the process.
PROCESSOR_S: Final = 0.8
MEMORY_BYTES: Final = 160 * 1024 * 1024
#: Seconds on the clock: of a call if the machine is busy, and of an import.
_CALL_S: Final = 5.0
_IMPORT_S: Final = 20.0
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
RUN_S: Final = 5.0
_READ_BYTES: Final = 1 << 18
ANSWERS_BYTES_MAX: Final = 32 * 1024 * 1024
#: Schemas that the process keeps, and characters of their texts, which need about six times as many bytes.
_LOADED_MAX: Final = 200
LOADED_CHARACTERS_MAX: Final = 8 * 1024 * 1024
_DEADLY_MAX: Final = 1000
DEADLY_S: Final = 60.0
REPLACED_MAX: Final = 2
#: Seconds without a call after which the process ends.
_IDLE_S: Final = 60.0


class CodecError(Exception):
    """Bytes that are not of the schema, or a schema that is refused. The message is a sentence without its point."""

    def __init__(self, message: str, *, of_schema: bool = False) -> None:
        super().__init__(message)
        #: Whether the schema is refused, whatever the data are.
        self.of_schema = of_schema


class Call(NamedTuple):
    operation: int
    schema: Schema
    data: bytes


class Codec:
    """The owner of the process. `close` ends it."""

    def __init__(self, *, processor_s: float = PROCESSOR_S, memory_bytes: int = MEMORY_BYTES) -> None:
        self._limits = (str(processor_s), str(memory_bytes))
        self._lock = asyncio.Lock()
        #: Seconds that are left to the run that holds the lock.
        self._left_s = 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._received = bytearray()
        self._prepared: set[str] = set()
        self._loaded: OrderedDict[int, CodecError | None] = OrderedDict()
        self._sizes: dict[int, int] = {}
        #: Schemas that ended a process when they were loaded, and until when they are not loaded again: the machine may
        #: have been busy.
        self._deadly: OrderedDict[int, tuple[float, CodecError]] = OrderedDict()
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def run(self, calls: Sequence[Call]) -> list[bytes | CodecError]:
        """Make the calls; return the answer of each."""
        answers: list[bytes | CodecError] = []
        try:
            async with asyncio.timeout(RUN_S):  # mutant: codec-wait-ends
                await self._lock.acquire()
        except TimeoutError:
            return [CodecError("other records are decoded or encoded at this time")] * len(calls)
        try:
            if self._idle is not None:
                self._idle.cancel()
            self._left_s = RUN_S
            for replaced in range(REPLACED_MAX + 1):
                if await self._run(calls[len(answers) :], answers):
                    break
                await self._end()
                if replaced == REPLACED_MAX or self._left_s <= 0:
                    answers += [CodecError("records before it took too long")] * (len(calls) - len(answers))
            self._idle = asyncio.get_running_loop().call_later(_IDLE_S, self._kill)
        except BaseException:
            await self._end()  # answers may still come
            raise
        finally:
            self._lock.release()
        return answers

    async def _run(self, calls: Sequence[Call], answers: list[bytes | CodecError]) -> bool:
        """Answer calls until one ends the process, or the run is over; return whether all are answered."""
        if not calls:
            return True
        process = await self._started()
        assert process.stdin is not None
        try:
            for kind in {call.schema.type for call in calls} - self._prepared:
                await self._ask(process, PREPARE, 0, kind.encode(), _IMPORT_S)
                self._prepared.add(kind)
        except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            answers.append(CodecError("the libraries for its schema cannot be loaded"))
            return False
        begin = asyncio.get_running_loop().time()
        try:
            return await self._answered(process, calls, answers)
        finally:
            self._left_s -= asyncio.get_running_loop().time() - begin

    async def _answered(
        self, process: asyncio.subprocess.Process, calls: Sequence[Call], answers: list[bytes | CodecError]
    ) -> bool:
        end = asyncio.get_running_loop().time() + self._left_s
        wanted = {call.schema.key: call.schema for call in calls}
        for schema in wanted.values():
            try:
                if asyncio.get_running_loop().time() < end:  # mutant: codec-run-ends
                    await self._load(process, schema, wanted)
            except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
                why = CodecError(await self._why("the schema"), of_schema=True)
                self._deadly[schema.key] = (asyncio.get_running_loop().time() + DEADLY_S, why)
                self._deadly.move_to_end(schema.key)
                if len(self._deadly) > _DEADLY_MAX:
                    self._deadly.popitem(last=False)
                return False
        assert process.stdin is not None
        sent = [call for call in calls if self._refused(call) is None]
        process.stdin.write(b"".join(_message(call.operation, call.schema.key, call.data) for call in sent))
        room = ANSWERS_BYTES_MAX - sum(len(each) for each in answers if isinstance(each, bytes))
        for call in calls:
            refused = self._refused(call)
            if refused is not None:
                answers.append(refused)
                continue
            try:
                answer = await self._answer(process, min(_CALL_S, end - asyncio.get_running_loop().time()))
            except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
                answers.append(CodecError(await self._why("it")))
                return False
            room -= len(answer) if isinstance(answer, bytes) else 0
            # mutant: codec-answers-bounded
            answers.append(answer if room >= 0 else CodecError("it and those before it are too large together"))
        return True

    def _refused(self, call: Call) -> CodecError | None:
        key = call.schema.key
        return self._known_deadly(key) or self._loaded.get(
            key, CodecError("other schemas took too long or are too large")
        )

    def _known_deadly(self, key: int) -> CodecError | None:
        until, refused = self._deadly.get(key, (0.0, None))
        return refused if asyncio.get_running_loop().time() < until else None

    async def _load(self, process: asyncio.subprocess.Process, schema: Schema, wanted: Container[int]) -> None:
        """Load a schema, in place of those loaded long ago that are not wanted now, if there is room for it then."""
        if self._known_deadly(schema.key) is not None:
            return
        if schema.key in self._loaded:
            self._loaded.move_to_end(schema.key)
            return
        texts = [schema.type, schema.text, *(text for pair in schema.references for text in pair)]
        size = sum(map(len, texts))
        for key in [key for key in self._loaded if key not in wanted]:
            if self._has_room(size):
                break
            del self._loaded[key], self._sizes[key]
            await self._ask(process, FORGET, key, b"", _CALL_S)
        if self._loaded and not self._has_room(size):
            return
        body = b"".join(TEXT.pack(len(text)) + text for text in (each.encode() for each in texts))
        answer = await self._ask(process, LOAD, schema.key, body, _CALL_S)
        self._loaded[schema.key] = answer if isinstance(answer, CodecError) else None
        self._sizes[schema.key] = size

    def _has_room(self, size: int) -> bool:
        left = LOADED_CHARACTERS_MAX - sum(self._sizes.values())  # mutant: codec-schemas-bounded
        return len(self._loaded) < _LOADED_MAX and size <= left

    async def _ask(
        self, process: asyncio.subprocess.Process, operation: int, key: int, body: bytes, limit_s: float
    ) -> bytes | CodecError:
        assert process.stdin is not None
        process.stdin.write(_message(operation, key, body))
        return await self._answer(process, limit_s)

    async def _answer(self, process: asyncio.subprocess.Process, limit_s: float) -> bytes | CodecError:
        assert process.stdout is not None
        while (found := self._taken()) is None:
            async with asyncio.timeout(limit_s):
                part = await process.stdout.read(_READ_BYTES)
            if not part:
                raise asyncio.IncompleteReadError(bytes(self._received), None)
            self._received += part
        return found

    def _taken(self) -> bytes | CodecError | None:
        """Return the next answer of those that have arrived; None if it is not whole yet."""
        received = self._received
        if len(received) < ANSWER.size:
            return None
        status, length = ANSWER.unpack_from(received)
        if length > _ANSWER_BYTES_MAX:
            raise ConnectionError("too large an answer")
        end = ANSWER.size + length
        if len(received) < end:
            return None
        body = bytes(received[ANSWER.size : end])
        del received[:end]
        return body if status == DONE else CodecError(body.decode(), of_schema=status == BAD_SCHEMA)

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._prepared, self._received = set(), bytearray()
            self._loaded, self._sizes = OrderedDict(), {}
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "admin_api.registry.program", *self._limits),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        return self._process

    async def _why(self, what: str) -> str:
        """Return why the process has ended, or is ended now."""
        process = self._process
        assert process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await process.wait()
        if process.returncode in (None, -signal.SIGPROF):
            return f"{what} takes more than a second"
        return f"{what} needs more memory than is allowed, or nests too deep"

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def close(self) -> None:
        """End the process."""
        if self._idle is not None:
            self._idle.cancel()
        await self._end()


def _message(operation: int, key: int, body: bytes) -> bytes:
    return REQUEST.pack(operation, key, len(body)) + body
