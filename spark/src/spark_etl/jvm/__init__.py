"""The JVM of a driver: how it is found, given its jars and options, started and ended."""
