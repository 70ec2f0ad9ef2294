"""One batch: its records, where they went, and the outputs that have it."""
