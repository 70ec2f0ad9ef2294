"""Records in all three formats: batches (2) and message sets (0, 1), compression, conversion, control records."""
