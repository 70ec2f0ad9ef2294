"""Metrics of the logs and the data service, computed when a scraper asks: appends and reads only count integers.

The HTTP thread reads state that the event loop owns. It copies the list of logs once and reads single values from it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric
from protocol_lib.errors import ErrorCode
from service_chassis.histogram import SECONDS, add_buckets

from storage_svc.log.cleaner.cleaner import Cleaner
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.scrub.scrubber import ScrubTotals
from storage_svc.rpc.data import DataService

_NAMES: Final = {int(code): code.name for code in ErrorCode}


class DataMetrics:
    """The families of one scrape."""

    def __init__(self, directory: DataFolder, maintenance: Maintenance, service: DataService) -> None:
        self._directory = directory
        self._maintenance = maintenance
        self._service = service

    def collect(self) -> Iterator[Metric]:
        logs = list(self._directory.logs.values())
        yield from _topics(logs)
        yield from _partitions(logs)
        yield from self._service_totals()
        yield from self._folder()
        yield from _compaction(self._maintenance.cleaner, logs)
        yield from _scrubs(self._maintenance.scrubber.totals)

    def _service_totals(self) -> Iterator[Metric]:
        service = self._service
        refused = CounterMetricFamily(
            "millrace_append_refused", "Batches that were not appended, by error.", labels=["error"]
        )
        for code, count in list(service.refused.items()):
            refused.add_metric([_NAMES.get(code, str(code))], count)
        yield refused
        yield GaugeMetricFamily("millrace_parked_reads", "Reads that wait for records.", service.parked_read_count)
        read = CounterMetricFamily(
            "millrace_read_bytes",
            "Bytes of records in answers: from memory, from the disk, or as places in segment files.",
            labels=["source"],
        )
        for source, size in service.read_bytes.items():
            read.add_metric([source], size)
        yield read
        yield service.append_durations.family(
            "millrace_append_duration_seconds", "Time to check and write the batches of a turn, for each append of it."
        )
        yield service.read_waits.family("millrace_fetch_wait_seconds", "Time for which reads waited for records.")

    def _folder(self) -> Iterator[Metric]:
        directory = self._directory
        flushers = directory.flusher, directory.background
        dirty = sum(flusher.dirty_count for flusher in flushers)
        duration = HistogramMetricFamily(
            "millrace_fsync_duration_seconds", "Rounds of syncs; one syncs everything that is dirty."
        )
        syncs = CounterMetricFamily(
            "millrace_fsync",
            "Rounds of syncs: of logs whose writers wait for them (produce), and of the others (flush).",
            labels=["reason"],
        )
        rounds = [sum(counts) for counts in zip(*(flusher.durations.counts for flusher in flushers), strict=True)]
        seconds = sum(flusher.durations.total for flusher in flushers)
        add_buckets(duration, (), SECONDS, rounds, seconds)
        for reason, flusher in zip(("produce", "flush"), flushers, strict=True):
            syncs.add_metric([reason], sum(flusher.durations.counts))
        yield from (duration, syncs)
        yield GaugeMetricFamily("millrace_dirty_logs", "Logs with something to sync.", dirty)
        yield GaugeMetricFamily("millrace_open_files", "Log segments that are open.", len(directory.open_segments))
        deleted = CounterMetricFamily(
            "millrace_retention_deleted_bytes", "Bytes of deleted segments.", labels=["reason"]
        )
        for why, size in directory.deleted_bytes.items():
            deleted.add_metric([why.value], size)
        yield deleted
        yield CounterMetricFamily(
            "millrace_crc_failures",
            "Damaged places in segments, which a start or the scrub found.",
            directory.damaged_places + self._maintenance.scrubber.totals.damaged_places,
        )
        yield GaugeMetricFamily(
            "millrace_recovery_duration_seconds", "Time to open the data folder.", directory.recovery_seconds
        )
        yield GaugeMetricFamily(
            "millrace_recovery_truncated_bytes",
            "Bytes of torn batches cut at the last start.",
            directory.truncated_bytes,
        )
        yield GaugeMetricFamily(
            "millrace_recovery_quarantined_bytes",
            "Bytes of damaged batches copied aside at the last start.",
            directory.quarantined_bytes,
        )
        try:
            disk = os.statvfs(directory.root)
        except OSError:  # the folder's disk does not answer: everything else is still worth telling
            return
        yield GaugeMetricFamily("millrace_disk_free_bytes", "Free space for data.", disk.f_bavail * disk.f_frsize)
        yield GaugeMetricFamily("millrace_disk_total_bytes", "Size of the data's disk.", disk.f_blocks * disk.f_frsize)


def _compaction(cleaner: Cleaner, logs: list[PartitionLog]) -> Iterator[Metric]:
    totals = cleaner.totals
    yield SummaryMetricFamily(
        "millrace_compaction_duration_seconds",
        "Logs compacted, and the time it took.",
        count_value=totals.runs,
        sum_value=totals.seconds,
    )
    yield CounterMetricFamily("millrace_compaction_failed", "Compactions that failed.", totals.failures)
    yield CounterMetricFamily("millrace_compaction_read_bytes", "Bytes read to compact.", totals.bytes_read)
    yield CounterMetricFamily("millrace_compaction_written_bytes", "Bytes of compacted segments.", totals.bytes_written)
    yield CounterMetricFamily(
        "millrace_compaction_removed_records", "Records that compaction removed.", totals.records_removed
    )
    yield GaugeMetricFamily(
        "millrace_compaction_dirty_ratio_max", "Uncompacted share of the dirtiest log.", cleaner.dirty_ratio_max
    )
    yield GaugeMetricFamily(
        "millrace_compaction_uncleanable_logs",
        "Logs that compaction has given up until the next start, or until the batch it cannot read is deleted.",
        sum(log.compaction.uncleanable is not None for log in logs),
    )


def _scrubs(totals: ScrubTotals) -> Iterator[Metric]:
    yield SummaryMetricFamily(
        "millrace_scrub_duration_seconds",
        "Times that logs were read and checked, and how long it took.",
        count_value=totals.rounds,
        sum_value=totals.seconds,
    )
    yield CounterMetricFamily("millrace_scrub_read_bytes", "Bytes read and checked.", totals.bytes_read)
    yield CounterMetricFamily("millrace_scrub_damaged_segments", "Segments found damaged.", totals.segments_damaged)
    yield CounterMetricFamily(
        "millrace_scrub_quarantined_bytes", "Bytes of damaged batches copied aside.", totals.quarantined_bytes
    )
    yield CounterMetricFamily(
        "millrace_scrub_failed", "Logs that could not be read to the end, or whose damage stayed.", totals.failures
    )
    yield GaugeMetricFamily(
        "millrace_scrub_unreadable_batches",
        "Batches whose records clients cannot read, as the last scrub of each log found them.",
        totals.unreadable_batches,
    )


def _topics(logs: list[PartitionLog]) -> Iterator[Metric]:
    totals: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for log in logs:
        total = totals[log.topic]
        total[0] += log.appended_records
        total[1] += log.appended_bytes
        total[2] += log.appended_batches
        total[3] += len(log.segments)
    families: list[CounterMetricFamily | GaugeMetricFamily] = [
        CounterMetricFamily("millrace_append_records", "Records appended since the start.", labels=["topic"]),
        CounterMetricFamily("millrace_append_bytes", "Bytes of batches appended since the start.", labels=["topic"]),
        CounterMetricFamily("millrace_append_batches", "Batches appended since the start.", labels=["topic"]),
        GaugeMetricFamily("millrace_segments", "Segments.", labels=["topic"]),
    ]
    for topic, total in totals.items():
        for family, value in zip(families, total, strict=True):
            family.add_metric([topic], value)
    yield from families


def _partitions(logs: list[PartitionLog]) -> Iterator[Metric]:
    size = GaugeMetricFamily("kafka_log_log_size", "Bytes of a partition's segments.", labels=["topic", "partition"])
    for log in logs:
        size.add_metric([log.topic, str(log.partition)], log.segments.size_bytes)
    yield size
    yield GaugeMetricFamily(
        "millrace_unflushed_bytes",
        "Bytes that were written and not synced since.",
        sum(log.appended_bytes - log.synced_bytes for log in logs if log.offline is None),
    )
    offline = sum(log.offline is not None for log in logs)
    yield GaugeMetricFamily("kafka_server_replicamanager_partitioncount", "Partitions.", len(logs))
    yield GaugeMetricFamily("kafka_server_replicamanager_leadercount", "Partitions led here.", len(logs) - offline)
    yield GaugeMetricFamily(
        "kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions that take no records.", offline
    )
    # There is one copy of each partition, which is always in sync, and one storage node, which decides everything.
    yield GaugeMetricFamily("kafka_server_replicamanager_underreplicatedpartitions", "Partitions out of sync.", 0)
    yield GaugeMetricFamily("kafka_controller_kafkacontroller_activecontrollercount", "Controllers.", 1)
