"""Kafka records → typed rows, or the reason why not."""

from spark_etl.decode.records import RAW, SOURCE_COLUMNS, Decoded, decode

__all__ = ["RAW", "SOURCE_COLUMNS", "Decoded", "decode"]
