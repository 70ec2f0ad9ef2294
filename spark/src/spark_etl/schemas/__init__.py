"""Schema files of records: JSON Schema and Avro, read into fields."""
