"""Sole owner of durable state: partition logs, topic catalog, group coordinator."""
