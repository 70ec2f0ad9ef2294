"""How logs behave: `LogConfig` per topic (Kafka's topic configs), `LogSettings` for the whole data folder.

`LogConfig.from_properties` reads Kafka's own names and spellings, e.g. {"segment.bytes": "1048576",
"cleanup.policy": "compact,delete"}; names it does not know are ignored (the catalog checks names and values).
Defaults are Kafka's (LogConfig).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

FOREVER: Final = 2**63 - 1
_DAY_MS: Final = 86_400_000

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))


class FlushPolicy(StrEnum):
    """The time when records become durable, and so how far consumers may read."""

    GROUP = "group"  # synced back to back; high watermark = synced offset
    OS = "os"  # the kernel decides; high watermark = log end offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The effective settings of one topic's logs. Times in milliseconds, sizes in bytes, -1 is unlimited."""

    cleanup_policy: frozenset[str] = frozenset(("delete",))
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    #: None: as the data folder.
    flush_policy: FlushPolicy | None = None
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = FOREVER
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_type: str = "CreateTime"
    #: Whether every record of a produced batch is checked, or its header alone.
    millrace_record_validation: str = "full"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS

    @property
    def compacted(self) -> bool:
        """Whether `cleanup.policy` includes `compact`."""
        return "compact" in self.cleanup_policy

    @property
    def compression_level(self) -> int | None:
        """The level of `compression_type`; None for those without levels."""
        return {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }.get(self.compression_type)

    @property
    def validates_records(self) -> bool:
        """Whether every record of a produced batch is checked."""
        return self.millrace_record_validation == "full"

    @property
    def log_append_time(self) -> bool:
        """Whether records get the time of their append as timestamp."""
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LogConfig:
        """Return the configuration that Kafka's topic config names and values describe."""
        values: dict[str, Any] = {}
        for name, value in properties.items():
            if (read := _READERS.get(name)) is not None:
                values[name.replace(".", "_")] = read(value)
        config = cls(**values)
        if config.compacted and config.max_compaction_lag_ms < config.segment_ms:
            # The active segment is not compacted: one that is due must not stay active.
            return replace(config, segment_ms=config.max_compaction_lag_ms)
        return config


def _policy(value: str) -> frozenset[str]:
    return frozenset(part.strip() for part in value.split(",") if part.strip())


_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "cleanup.policy": _policy,
    "compression.gzip.level": int,
    "compression.lz4.level": int,
    "compression.type": str,
    "compression.zstd.level": int,
    "delete.retention.ms": int,
    "file.delete.delay.ms": int,
    "flush.messages": int,
    "flush.ms": int,
    "flush.policy": FlushPolicy,
    "index.interval.bytes": int,
    "max.compaction.lag.ms": int,
    "max.message.bytes": int,
    "message.timestamp.after.max.ms": int,
    "message.timestamp.before.max.ms": int,
    "message.timestamp.type": str,
    "millrace.record.validation": str,
    "min.cleanable.dirty.ratio": float,
    "min.compaction.lag.ms": int,
    "retention.bytes": int,
    "retention.ms": int,
    "segment.bytes": int,
    "segment.index.bytes": int,
    "segment.jitter.ms": int,
    "segment.ms": int,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Settings of the data folder as a whole."""

    flush_policy: FlushPolicy = FlushPolicy.GROUP
    checkpoint_interval_ms: int = 60_000
    #: 0: as many as the process's limit of open files allows.
    open_segments_max: int = 0
    retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = _DAY_MS
    producer_id_check_interval_ms: int = 600_000
    parked_reads_max: int = 10_000
    read_bytes_max: int = 55 << 20
    cleaner_backoff_ms: int = 15_000
    cleaner_dedupe_buffer_bytes: int = 128 << 20
    cleaner_io_bytes_per_second: int = 0
    scrub_interval_ms: int = 7 * _DAY_MS
    #: The delay of the first scrub after a start.
    scrub_delay_ms: int = 10_000
    scrub_io_bytes_per_second: int = 0
