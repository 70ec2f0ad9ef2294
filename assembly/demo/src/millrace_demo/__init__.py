"""The main job on real data: topics over REST, stock clients in and out, Spark ETL, every count checked."""
