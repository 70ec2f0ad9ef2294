"""Fixtures of the whole suite."""

from kafka_broker import apache_kafka
from kafka_classes import kafka_classes

__all__ = ["apache_kafka", "kafka_classes"]
