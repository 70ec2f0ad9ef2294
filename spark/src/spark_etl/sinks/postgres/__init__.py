"""Good rows in tables of PostgreSQL: the sink, its batches and their numbers, types of columns, and statements."""
