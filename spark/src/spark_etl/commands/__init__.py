"""The commands of spark-etl, a module each: `arguments(parser)` adds its options, `run(…)` returns the exit status."""
