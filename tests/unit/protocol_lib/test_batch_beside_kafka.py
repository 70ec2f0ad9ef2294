"""Record batches compared with Apache Kafka's own classes: the same bytes, and each reads the other's."""

import pytest
from protocol_lib.records.batch import HEADER_SIZE, build_batch, build_empty_batch, read_batch_header
from protocol_lib.records.compression import Codec
from protocol_lib.records.control import ControlType, EndTransactionMarker, build_marker_batch
from protocol_lib.records.record import Record, read_records

NOW = 1_700_000_000_000
FEW = [
    Record(100, NOW, None, None, (("h", b"x"), ("größe", None), ("h", b""))),
    Record(101, NOW + 4, b"key-1", bytes(7)),
    Record(102, NOW - 8, b"key-2", bytes(14)),
    Record(104, NOW + 1, None, bytes(1_000)),
    Record(107, NOW + 5, b"", b"", (("h", b"x"),)),
]
PRODUCER = {"base_offset": 100, "producer_id": 7, "producer_epoch": 1, "base_sequence": 30, "leader_epoch": 4}
JAVA = "org.apache.kafka.common."
NO_HORIZON = -1


class KafkaBatches:
    """Batches of Kafka's own MemoryRecordsBuilder, and its MemoryRecords as the reader of ours."""

    def __init__(self, classes):
        self.classes = classes

    def builder(self, codec=Codec.NONE, *, append_time=None, transactional=False, control=False, horizon=NO_HORIZON):
        named = self.classes.named
        types = named(f"{JAVA}record.TimestampType")
        return named(f"{JAVA}record.internal.MemoryRecordsBuilder")(
            named(f"{JAVA}utils.ByteBufferOutputStream")(100_000),
            2,
            named(f"{JAVA}compress.Compression").of(codec.name.lower()).build(),
            types.CREATE_TIME if append_time is None else types.LOG_APPEND_TIME,
            100,
            append_time or -1,
            7,
            1,
            30,
            transactional,
            control,
            4,
            100_000,
            horizon,
        )

    def built(self, builder):
        buffer = builder.build().buffer()
        return bytes(buffer.array())[buffer.arrayOffset() : buffer.arrayOffset() + buffer.limit()]

    def of(self, records, *arguments, last_offset=None, **options):
        builder = self.builder(*arguments, **options)
        header = self.classes.named(f"{JAVA}header.internals.RecordHeader")
        for record in records:
            headers = self.classes.array(f"{JAVA}header.Header", [header(*each) for each in record.headers])
            builder.appendWithOffset(record.offset, record.timestamp, record.key, record.value, headers)
        if last_offset is not None:
            builder.overrideLastOffset(last_offset)
        return self.built(builder)

    def read(self, batch):
        buffer = self.classes.jvm.java.nio.ByteBuffer.wrap(batch)
        read = self.classes.named(f"{JAVA}record.internal.MemoryRecords").readableRecords(buffer)
        (whole,) = self.classes.each(read.batches())
        whole.ensureValid()
        return [
            Record(
                record.offset(),
                record.timestamp(),
                self.taken(record.key()),
                self.taken(record.value()),
                tuple((header.key(), header.value() and bytes(header.value())) for header in record.headers()),
            )
            for record in self.classes.each(whole)
        ]

    def taken(self, buffer):
        if buffer is None:
            return None
        start = buffer.arrayOffset() + buffer.position()
        return bytes(buffer.array())[start : start + buffer.remaining()]


def test_kafka_builds_the_same_bytes(kafka_classes):
    kafka = KafkaBatches(kafka_classes)
    assert build_batch(FEW, **PRODUCER) == kafka.of(FEW)
    assert build_batch(FEW, transactional=True, **PRODUCER) == kafka.of(FEW, transactional=True)
    horizon = NOW + 86_400_000
    ours = build_batch(FEW[2:4], last_offset=149, delete_horizon_ms=horizon, **PRODUCER)
    assert ours == kafka.of(FEW[2:4], horizon=horizon, last_offset=149)
    assert list(read_records(ours)) == FEW[2:4]


def test_kafka_and_we_say_log_append_time_alike(kafka_classes):
    kafka = KafkaBatches(kafka_classes)
    appended = [Record(r.offset, NOW + 99, r.key, r.value, r.headers) for r in FEW]
    ours, theirs = build_batch(appended, log_append_time=True, **PRODUCER), kafka.of(FEW, append_time=NOW + 99)
    assert [list(read_records(batch)) for batch in (ours, theirs)] == [appended, appended]
    assert kafka.read(ours) == appended
    said = [(header.attributes, header.max_timestamp) for header in map(read_batch_header, (ours, theirs))]
    assert said == [(0x08, NOW + 99), (0x08, NOW + 99)]


def test_kafka_writes_the_same_marker(kafka_classes):
    kafka = KafkaBatches(kafka_classes)
    kinds = kafka_classes.named(f"{JAVA}record.internal.ControlRecordType")
    marker = kafka_classes.named(f"{JAVA}record.internal.EndTransactionMarker")(kinds.COMMIT, 9)
    builder = kafka.builder(transactional=True, control=True)
    builder.appendEndTxnMarker(NOW, marker)
    theirs = kafka.built(builder)
    ours = bytearray(
        build_marker_batch(
            EndTransactionMarker(ControlType.COMMIT, 9), timestamp=NOW, producer_id=7, producer_epoch=1, base_offset=100
        )
    )
    assert [(r.key, r.value) for r in read_records(ours)] == [(r.key, r.value) for r in read_records(theirs)]
    assert (read_batch_header(ours).attributes, len(ours)) == (read_batch_header(theirs).attributes, len(theirs))


def test_kafka_leaves_the_same_of_an_emptied_batch(kafka_classes):
    buffer = kafka_classes.jvm.java.nio.ByteBuffer.allocate(HEADER_SIZE)
    create_time = kafka_classes.named(f"{JAVA}record.TimestampType").CREATE_TIME
    batches = kafka_classes.named(f"{JAVA}record.internal.DefaultRecordBatch")
    batches.writeEmptyHeader(buffer, 2, 7, 1, 30, 100, 149, 4, create_time, NOW + 5, True, False)
    full = build_batch(FEW, last_offset=149, codec=Codec.ZSTD, transactional=True, **PRODUCER)
    assert build_empty_batch(read_batch_header(full)) == bytes(buffer.array())


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_kafka_and_we_read_each_other_s_batches(kafka_classes, codec):
    kafka = KafkaBatches(kafka_classes)
    assert kafka.read(build_batch(FEW, codec=codec, **PRODUCER)) == FEW
    assert list(read_records(kafka.of(FEW, codec))) == FEW
