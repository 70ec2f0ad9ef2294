"""The version of Millrace; every distribution of ours carries the same."""

VERSION = "0.1.0"
