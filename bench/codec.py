"""Figures of the codec: protocol_lib, kafka-python, aiokafka and kio decode and encode messages in turns, in one
process.

`python bench/codec.py` prints a table; `make bench-parts` runs it. Every library decodes the same bytes and
encodes the message that it decoded from them; the encoded bytes are compared first. A ratio says how many times as fast
protocol_lib is.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.protocol import fetch as aiokafka_fetch
from aiokafka.protocol import metadata as aiokafka_metadata
from aiokafka.protocol import produce as aiokafka_produce
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from protocol_lib.codec import decode, encode
from protocol_lib.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol_lib.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.schema import message_info
from table import Row, show

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    from kafka.protocol.consumer import fetch as kafka_python_fetch
    from kafka.protocol.metadata import metadata as kafka_python_metadata
    from kafka.protocol.producer import produce as kafka_python_produce

ROUNDS = 80
TURN_SECONDS = 0.001  # so short that many turns are not interrupted
REPEATS_MIN = 3
#: library -> the least geometric mean of the ratios in both directions, and the least of them all.
MUST = {"kafka-python": (1.5, 1.1), "aiokafka": (2.5, 1.1)}
IMPORT_MS_MAX = 60


def metadata(topics: int, partitions: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=tuple(MetadataResponseBroker(node_id=n, host=f"broker-{n}.example", port=9092) for n in range(3)),
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
        controller_id=1,
        topics=tuple(
            MetadataResponseTopic(
                error_code=0,
                name=f"topic-{topic}",
                topic_id=topic.to_bytes(16, "big"),
                partitions=tuple(
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=index % 3,
                        leader_epoch=7,
                        replica_nodes=(0, 1, 2),
                        isr_nodes=(0, 1, 2),
                    )
                    for index in range(partitions)
                ),
            )
            for topic in range(topics)
        ),
    )


def produce(partitions: int, size: int) -> ProduceRequest:
    records = random.Random(1).randbytes(size)
    data = tuple(PartitionProduceData(index=index, records=records) for index in range(partitions))
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=(TopicProduceData(name="orders", partition_data=data),)
    )


def fetch(topics: int, partitions: int) -> FetchRequest:
    wanted = tuple(
        FetchPartition(partition=index, fetch_offset=10**6 + index, partition_max_bytes=1 << 20)
        for index in range(partitions)
    )
    named = tuple(FetchTopic(topic=f"topic-{topic}", partitions=wanted) for topic in range(topics))
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_id=5, session_epoch=6, topics=named)


def fetched(partitions: int, size: int) -> FetchResponse:
    records = random.Random(1).randbytes(size)
    data = tuple(
        PartitionData(
            partition_index=index,
            error_code=0,
            high_watermark=10**6,
            last_stable_offset=10**6,
            log_start_offset=0,
            aborted_transactions=(),
            records=records,
        )
        for index in range(partitions)
    )
    return FetchResponse(session_id=5, responses=(FetchableTopicResponse(topic="orders", partitions=data),))


#: Name -> the message, its versions: one before flexible versions, which aiokafka has too, and one of them.
CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "Metadata response, 1 topic of 3": (metadata(1, 3), (5, 9)),
    "Metadata response, 50 topics of 12": (metadata(50, 12), (5, 9)),
    "Produce request, 1 partition, 1 KB": (produce(1, 1_000), (8, 9)),
    "Produce request, 1 partition, 16 KB": (produce(1, 16_000), (8, 9)),
    "Produce request, 16 partitions, 16 KB": (produce(16, 16_000), (8, 9)),
    "Fetch request, 1 partition": (fetch(1, 1), (11, 12)),
    "Fetch request, 4 topics of 6": (fetch(4, 6), (11, 12)),
    "Fetch response, 1 partition, 16 KB": (fetched(1, 16_000), (11, 12)),
    "Fetch response, 24 partitions, 1 KB": (fetched(24, 1_000), (11, 12)),
}
KAFKA_PYTHON = {
    name: getattr(module, name)
    for module, names in (
        (kafka_python_metadata, ("MetadataResponse",)),
        (kafka_python_produce, ("ProduceRequest",)),
        (kafka_python_fetch, ("FetchRequest", "FetchResponse")),
    )
    for name in names
}
AIOKAFKA = {"MetadataResponse": aiokafka_metadata, "ProduceRequest": aiokafka_produce, "FetchRequest": aiokafka_fetch,
            "FetchResponse": aiokafka_fetch}  # fmt: skip


class Work(NamedTuple):
    """One library's way to decode the bytes and to encode the message it decoded."""

    decode: Callable[[], Any]
    encode: Callable[[], Any]


def libraries(message: Any, version: int, data: bytes) -> dict[str, Work]:
    name, cls = type(message).__name__, type(message)
    found = {"protocol_lib": Work(lambda: decode(cls, version, data), lambda: encode(message, version))}

    theirs = KAFKA_PYTHON[name]
    other = theirs.decode(data, version=version)
    other._header = None  # a decoded message lacks it
    found["kafka-python"] = Work(lambda: theirs.decode(data, version=version), lambda: other.encode(version=version))

    load = load_request_schema if name.endswith("Request") else load_response_schema
    api_key = message_info(cls).api_key
    assert api_key is not None
    entity = load(api_key, version)
    read, write = entity_reader(entity), entity_writer(entity)
    value, _ = read(data, 0)

    def kio_encode() -> bytes:
        buffer = BytesIO()
        write(buffer, value)
        return buffer.getvalue()

    found["kio"] = Work(lambda: read(data, 0), kio_encode)

    in_aiokafka = getattr(AIOKAFKA[name], f"{name}_v{version}", None)
    if in_aiokafka is not None:
        plain = in_aiokafka.decode(data)
        found["aiokafka"] = Work(lambda: in_aiokafka.decode(data), plain.encode)
    for library, work in found.items():
        assert bytes(work.encode()) == data, f"{library} writes other bytes of {name} {version}"
    return found


def interleaved(works: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the seconds of each work, the best of its turns."""
    repeats, turns = {}, defaultdict(list)
    for library, work in works.items():
        work()  # compiles its code, if the library does so at first use
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < TURN_SECONDS or count < REPEATS_MIN:
            work()
            count += 1
        repeats[library] = count
    for _ in range(ROUNDS):
        for library, work in works.items():
            begin = time.perf_counter()
            for _ in range(repeats[library]):
                work()
            turns[library].append((time.perf_counter() - begin) / repeats[library])
    return {library: min(taken) for library, taken in turns.items()}


def milliseconds_of(statement: str, before: str = "") -> float:
    """Return the best of a few separate processes."""
    code = f"import time\n{before}\nbegin = time.perf_counter()\n{statement}\nprint(time.perf_counter() - begin)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs) * 1000


def geometric_mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def main() -> None:
    ratios: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    rows = []
    gc.disable()
    for what, (message, versions) in CASES.items():
        for version in versions:
            works = libraries(message, version, encode(message, version))
            for direction in Work._fields:
                seconds = interleaved({library: getattr(work, direction) for library, work in works.items()})
                ours = seconds.pop("protocol_lib")
                name = f"{direction} {what}, version {version}"
                for library, theirs in seconds.items():
                    ratios[library, direction].append((theirs / ours, name))
                others = ", ".join(f"{library} {theirs / ours:.2f}" for library, theirs in seconds.items())
                rows.append(Row(name, "", f"{ours * 1e6:.1f} us; {others}"))
            gc.collect()
    for library, (mean_min, least_min) in MUST.items():
        both = ratios[library, "decode"] + ratios[library, "encode"]
        decoded = geometric_mean([ratio for ratio, _ in ratios[library, "decode"]])
        mean = geometric_mean([ratio for ratio, _ in both])
        rows.append(Row(f"times as fast as {library}, mean of these", f">= {mean_min}", f"{mean:.2f}"))
        rows.append(Row(f"times as fast as {library}, mean of decoding", "", f"{decoded:.2f}"))
        least, which = min(both)
        rows.append(Row(f"times as fast as {library}, least ({which})"[:73], f">= {least_min}", f"{least:.2f}"))
    least, which = min(ratios["kio", "encode"])
    rows.append(Row(f"times as fast as kio, least ({which})", "> 1", f"{least:.2f}"))
    everything = "import protocol_lib.api, protocol_lib.codec, protocol_lib.framing, protocol_lib.headers"
    rows.append(
        Row("import protocol_lib", f"<= {IMPORT_MS_MAX} ms", f"{milliseconds_of('import protocol_lib'):.1f} ms")
    )
    rows.append(Row("import its codec, registry, headers and framing", "", f"{milliseconds_of(everything):.1f} ms"))
    metadata = "from protocol_lib.codec import decoder; from protocol_lib.messages.metadata import MetadataResponse"
    first = milliseconds_of("decoder(MetadataResponse, 12)", metadata)
    rows.append(Row("the decoder of Metadata responses 12, made when first used", "", f"{first:.1f} ms"))
    show(rows)


if __name__ == "__main__":
    main()
