"""Spark ETL pipelines that consume Kafka topics."""
