"""Stateless Kafka gateway: Kafka TCP outside, gRPC to storage inside."""
