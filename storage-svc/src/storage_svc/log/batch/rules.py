"""The terms in which a batch is judged: the rules of its topic, and the refusal of a batch that breaks them."""

from __future__ import annotations

from typing import Final, final

from protocol_lib.records.compression import Codec
from protocol_lib.records.header import CODEC_MASK

from storage_svc.log.batch.header import RawHeader
from storage_svc.log.config import FOREVER, LogConfig

#: The most bad records that one answer names. Kafka names all, so that its answer can be many times the request.
RECORD_ERRORS_MAX: Final = 1000

_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


#: Added to any time of a clock it fits into 64 bits.
_AFTER_MAX_MS: Final = 2**62


class Rules:
    """The demands of a topic's settings on a batch, in the form the checks use."""

    __slots__ = (
        "bytes_max",
        "codec",
        "keeps_plain",
        "keys_required",
        "level",
        "log_append_time",
        "opens_every",
        "segment_bytes",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
    )

    def __init__(self, config: LogConfig) -> None:
        self.bytes_max = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.keys_required = config.compacted
        self.log_append_time = config.log_append_time
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self.timestamp_before_max_ms = config.message_timestamp_before_max_ms
        self.codec = None if config.compression_type == "producer" else _CODECS[config.compression_type]
        self.level = config.compression_level
        #: Whether a plain batch of sound records, whose header says their largest timestamp, is stored as it is.
        self.keeps_plain = not self.codec and not self.log_append_time and self.timestamp_after_max_ms < _AFTER_MAX_MS
        #: Whether the records of every batch are checked.
        self.opens_every = (
            config.validates_records
            or self.keys_required
            or (not self.log_append_time and self.timestamp_before_max_ms != FOREVER)
        )

    def believes(self, header: RawHeader, now_ms: int) -> bool:
        """Return whether a batch of this header is stored as it is; only asked if not every batch is opened."""
        _, _, _, _, _, attributes, _, first_ms, max_ms, _, _, _, count = header
        if self.codec is not None and self.codec != attributes & CODEC_MASK:
            return False
        return self.log_append_time or (  # mutant: doubtful-header-walked
            first_ms <= max_ms <= now_ms + self.timestamp_after_max_ms and (count > 1 or max_ms == first_ms)
        )


@final  # so that its type, which is quicker than `isinstance`, tells
class Refusal:
    """The reason why a batch is not appended."""

    __slots__ = ("error_code", "message", "record_errors")

    def __init__(
        self, error_code: int, message: str, record_errors: list[tuple[int, str | None]] | None = None
    ) -> None:
        self.error_code = error_code
        self.message = message
        self.record_errors = record_errors or []
