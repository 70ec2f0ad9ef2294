"""The sections about the run of a pipeline: trigger, metrics, offsets, restart."""

from pydantic import Field

from spark_etl.config.model import Duration, Name, Section


class ProcessingTime(Section):
    """A batch at each interval, without end."""

    processing_time: Duration


class MetricsConfig(Section):
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)


class OffsetsConfig(Section):
    """The consumer group that the end offsets of each batch are committed to; default: etl.<pipeline>."""

    publish_group: Name | None = None


class RestartConfig(Section):
    """Restarts after a failure of a run without end."""

    attempts: int = Field(default=10, ge=0, le=1_000_000)
    backoff: Duration = "1 second"
    backoff_max: Duration = "1 minute"
