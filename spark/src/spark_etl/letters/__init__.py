"""Refused records: the rows of a batch that become dead letters, and the reasons of failures."""
