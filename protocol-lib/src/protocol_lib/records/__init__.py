"""Record batches (format version 2): their headers, the records inside, compression, control records."""
