"""What made the state in a checkpoint: the pipeline, its `dedupe`, and the aggregates of its windows.

    CHECKPOINT/_etl/state.json    {"name": "orders", "dedupe": true, "windows": {"orders.hourly": {"window": …}}}

Outputs know the batches of a pipeline by its name. Under another one they would get a batch again that they have, or
never get the records before it.

Spark compares the types of its state. It would take sums for maxima, and windows of ten minutes for those of an hour.
A query that gets its first step with state leaves its checkpoint useless, also for the file of before. So a change is
refused before anything is written.
"""

from typing import Any

from spark_etl.checkpoint.offsets import Checkpoint
from spark_etl.config import KafkaSinkConfig, Pipeline

_NOTE = "state"


def check(pipeline: Pipeline, checkpoint: Checkpoint) -> None:
    """Compare the pipeline with the state in its checkpoint, and keep it there. ConfigError: they do not fit."""
    kept = checkpoint.notes.read(_NOTE)
    name, dedupe, windows = pipeline.config.name, pipeline.config.dedupe is not None, _windows(pipeline)
    if kept is not None:
        if kept.get("name", name) != name and checkpoint.last_planned() is not None:  # mutant: name-of-checkpoint
            raise pipeline.fault(
                ("name",),
                f"{checkpoint.location} is the checkpoint of the pipeline {kept['name']}, and `name` may not change."
                " Give another pipeline another checkpoint",
            )
        if kept["dedupe"] != dedupe and checkpoint.last_planned() is not None:
            change = "added" if dedupe else "removed"
            raise pipeline.fault(
                ("dedupe",),
                f"`dedupe` was {change} after the checkpoint began, and Spark cannot go on with {checkpoint.location}."
                " Move that folder away, then use `recover`",
            )
        for number, (topic, aggregate) in windows.items():
            folder = window_location(checkpoint, topic)
            changed = _given(kept["windows"].get(topic, aggregate)) != _given(aggregate)
            if changed and checkpoint.beside(folder).last_planned() is not None:
                raise pipeline.fault(
                    ("sinks", number, "aggregate"),
                    f"it was changed after {topic} got its first windows, which Spark would mix with new ones."
                    f" Give the aggregate another topic, or remove {folder}",
                )
    now = {
        "name": name,
        "dedupe": dedupe,
        "windows": {**(kept or {"windows": {}})["windows"], **dict(windows.values())},
    }
    if now != kept:
        checkpoint.notes.write(_NOTE, now)


def window_location(checkpoint: Checkpoint, topic: str) -> str:
    """Return the checkpoint of the query that aggregates windows into a topic."""
    return f"{checkpoint.location}/_etl/windows/{topic}"


def window_locations(pipeline: Pipeline, checkpoint: Checkpoint) -> list[str]:
    """Return the checkpoints of all windows of the file."""
    return [window_location(checkpoint, topic) for topic, _ in _windows(pipeline).values()]


def _windows(pipeline: Pipeline) -> dict[int, tuple[str, dict[str, Any]]]:
    """Return topic and aggregate of each sink of windows, by the sink's number."""
    event_time = pipeline.config.decode.timestamp
    field = event_time.field if event_time is not None else None
    return {
        number: (sink.topic, {**sink.aggregate.model_dump(mode="json"), "field": field})
        for number, sink in enumerate(pipeline.config.sinks)
        if isinstance(sink, KafkaSinkConfig) and sink.aggregate is not None and sink.aggregate.window is not None
    }


def _given(aggregate: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are set: a later build may know more of them."""
    return {name: value for name, value in aggregate.items() if value is not None}
