"""Kafka as a pipeline sees it: the cluster, its topics and their offsets."""
