"""Partition logs in Apache Kafka's on-disk format."""
