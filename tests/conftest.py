"""Fixtures of the whole suite."""

from kafka_broker import apache_kafka

__all__ = ["apache_kafka"]
