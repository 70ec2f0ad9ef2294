"""The Delta Lake table that a pipeline writes: exactly once, checked before the commit, synced on a local disk."""

from spark_etl.lake.table import Commit, LakeTable

__all__ = ["Commit", "LakeTable"]
