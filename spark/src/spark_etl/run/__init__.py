"""One run of a pipeline: its queries and batches, and the documents next to its checkpoint."""
