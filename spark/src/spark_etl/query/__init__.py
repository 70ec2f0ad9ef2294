"""A streaming query of Spark, seen from Python: its progress, the counts of its plan, and the size of its batches."""
