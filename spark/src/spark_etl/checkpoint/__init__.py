"""Spark's checkpoint of a query, and our documents next to it."""
