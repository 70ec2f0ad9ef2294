"""The cluster at a glance: topics with their sizes, ranges of metrics, and the segments on storage's volume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, get_args
from urllib.parse import urlencode

from broker_contract import administration_pb2
from broker_contract.acls import CLUSTER_NAME, Operation
from fastapi import FastAPI, Query, Request

from admin_api import errors, groups, overview
from admin_api.needs import HIDES, Calls, in_request, on_cluster, on_topic
from admin_api.overview import TopicState
from admin_api.paging import Key, PageQuery
from admin_api.rights import CLUSTER, GROUP, TOPIC, Action
from admin_api.routers.operations import Operations
from admin_api.samples import SAMPLE_S, Samples
from admin_api.schemas.administration import (
    MetricName,
    MetricPoint,
    MetricRange,
    PartitionSummary,
    PartitionSummaryList,
    Segment,
    SegmentList,
    TopicSort,
    TopicSummary,
    TopicSummaryList,
)
from admin_api.storage import EARLIEST, LATEST, TOPIC_RESOURCE
from admin_api.view import TopicName, base_url

_Health = administration_pb2.DescribeSegmentsResponse.IndexHealth
_OfTopic = Annotated[str | None, Query(max_length=249, description="Only this topic.")]

#: Rows of a list whose caller requests no page.
ROWS_MAX = 1000
#: The largest number first; a name after it, so that keys differ.
_KEYS: Mapping[TopicSort, Callable[[TopicState, Samples], Key]] = {
    "name": lambda topic, _: (topic.name,),
    "partitions": lambda topic, _: (-topic.partition_count, topic.name),
    "records": lambda topic, _: (-topic.records, topic.name),
    "bytes": lambda topic, _: (-topic.size_bytes, topic.name),
    "records_in_per_s": lambda topic, samples: (-int((_rate(topic, samples) or 0) * 1000), topic.name),
    "consumer_groups": lambda topic, _: (-len(topic.lags), topic.name),
    "max_lag": lambda topic, _: (-(topic.max_lag or 0), topic.name),
}
#: Rates, and the series whose growth they are.
_COUNTERS: Mapping[MetricName, str] = {
    "records_in_per_s": "end_offsets",
    "bytes_in_per_s": "appended_bytes",
    "bytes_out_per_s": "sent_bytes",
}
_LAGS = ("lag", "lag_seconds")
assert set(_KEYS) == set(get_args(TopicSort))


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Topics (api/v1)")
    operations.get("/api/v1/topics", "listTopicSummaries", list_topic_summaries, needs=HIDES)
    operations.get(
        "/api/v1/topics/{topic_name}/partitions",
        "listPartitionSummaries",
        list_partition_summaries,
        needs=on_topic(Operation.DESCRIBE),
    )
    operations = Operations(app, "Cluster (api/v1)")
    operations.get(
        "/api/v1/metrics/range",
        "getMetricRange",
        get_metric_range,
        needs=in_request("DESCRIBE topic, group or cluster", _shown_by_metric),
    )
    operations.get("/api/v1/storage/segments", "listSegments", list_segments, needs=on_cluster(Operation.DESCRIBE))


def _shown_by_metric(request: Request) -> list[Action]:
    """Return the need of a range: that of its topic or group, or of the cluster for sums of all."""
    query = request.query_params
    if "topic" in query:
        return [(Operation.DESCRIBE, TOPIC, query["topic"])]
    if "group" in query:
        return [(Operation.DESCRIBE, GROUP, query["group"])]
    return [(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)]


async def list_topic_summaries(
    calls: Calls,
    request: Request,
    paging: PageQuery,
    sort: Annotated[TopicSort, Query(description="Names rise, numbers fall.")] = "name",
    q: Annotated[str, Query(max_length=249, description="A part of the name, in any case.")] = "",
    include_internal: Annotated[bool, Query(description="Whether to list internal topics too.")] = False,
) -> TopicSummaryList:
    """List topics with their records, bytes, rates and groups; at most 1,000 a page."""
    samples: Samples = request.app.state.samples
    seen = await overview.take(calls)
    part = q.lower()
    chosen = [
        topic
        for topic in seen.topics.values()
        if part in topic.name.lower() and (include_internal or not topic.is_internal)
    ]
    page = paging.cut(chosen, lambda topic: _KEYS[sort](topic, samples), rows_max=ROWS_MAX)
    names = [topic.name for topic in page.rows]
    found = await calls.configs(TOPIC_RESOURCE, names, key="cleanup.policy", skip_absent=True)
    policies = {resource.name: config.value for resource in found for config in resource.configs}
    # A topic that went away since is left out.
    rows = [_summary(topic, samples, policies[topic.name]) for topic in page.rows if topic.name in policies]
    return TopicSummaryList(data=rows, next=next_url(request, page.next_query))


async def list_partition_summaries(
    calls: Calls, topic_name: TopicName, request: Request, paging: PageQuery
) -> PartitionSummaryList:
    """List the partitions of a topic with their offsets and bytes; at most 1,000 a page."""
    topic, folder = await asyncio.gather(calls.topic(topic_name), calls.log_dirs())
    page = paging.cut(range(topic.partition_count), lambda partition: (partition,), rows_max=ROWS_MAX)
    pairs = [(topic_name, partition) for partition in page.rows]
    found, stable = await asyncio.gather(
        calls.offsets([(*pair, kind) for pair in pairs for kind in (EARLIEST, LATEST)]),
        calls.offsets([(*pair, LATEST) for pair in pairs], read_committed=True),
    )
    logs = {each.partition: each for of in folder.topics if of.name == topic_name for each in of.partitions}
    rows = []
    for partition, earliest, latest, last in zip(page.rows, found[::2], found[1::2], stable, strict=True):
        is_known = not (earliest.error_code or latest.error_code or last.error_code)
        log = logs.get(partition)
        rows.append(
            PartitionSummary(
                partition_id=partition,
                log_start_offset=earliest.offset if is_known else None,
                log_end_offset=latest.offset if is_known else None,
                last_stable_offset=last.offset if is_known else None,
                records=latest.offset - earliest.offset if is_known else None,
                bytes=0 if log is None else log.size_bytes,
                is_offline=not is_known if log is None else log.is_offline,
            )
        )
    return PartitionSummaryList(topic_name=topic_name, data=rows, next=next_url(request, page.next_query))


async def get_metric_range(
    request: Request,
    calls: Calls,
    metric: Annotated[
        MetricName,
        Query(description="lag and lag_seconds are of groups, disk_used_bytes of the volume, the others of topics."),
    ],
    topic: _OfTopic = None,
    group: Annotated[str | None, Query(max_length=1000, description="Only this group; for its lag.")] = None,
) -> MetricRange:
    """Return the last 15 minutes of a metric: of one topic or group, or of all: the sum, of lag_seconds the longest."""
    if (group is not None and metric not in _LAGS) or (topic is not None and metric in (*_LAGS, "disk_used_bytes")):
        raise errors.of_status(
            400, "query: lag and lag_seconds are of groups, disk_used_bytes of the volume, the others of topics"
        )
    samples: Samples = request.app.state.samples
    counter = _COUNTERS.get(metric)
    if counter is not None:
        points = list(samples.rates(counter, topic))
    elif metric == "lag_seconds":
        points = [(at, None if ms is None else ms / 1000) for at, ms in samples.range("lag_ms", group)]
    else:
        points = list(samples.range(metric, topic or group))
    if all(value is None for _, value in points):  # else it existed a while ago
        if topic is not None:
            await calls.topic(topic)
        if group is not None:
            await groups.describe(calls, group)
    return MetricRange(
        metric=metric,
        topic=topic,
        group=group,
        interval_ms=int(SAMPLE_S * 1000),
        points=[MetricPoint(at=int(at * 1000), value=value) for at, value in points],
    )


async def list_segments(calls: Calls, request: Request, paging: PageQuery, topic: _OfTopic = None) -> SegmentList:
    """List segments by topic, partition and base offset, with the state of their indexes; at most 1,000 a page."""
    match paging.after:
        case None:
            after = None
        case (str(name), int(partition), int(base)) if abs(partition) < 2**31 and abs(base) < 2**63:
            after = (name, partition, base)
        case _:
            raise errors.of_status(400, "page_token is not one that this list gave out.")
    if topic is not None:
        await calls.topic(topic)
    answer = await calls.segments(topic or "", after, paging.size or ROWS_MAX)
    rows = [_segment(each) for each in answer.segments]
    next_query = None
    if answer.has_more and rows:
        next_query = paging.next_query((rows[-1].topic_name, rows[-1].partition_id, rows[-1].base_offset))
    return SegmentList(data=rows, next=next_url(request, next_query))


def _rate(topic: TopicState, samples: Samples) -> float | None:
    return samples.rate(topic.name, topic.end_offsets)


def _summary(topic: TopicState, samples: Samples, policy: str) -> TopicSummary:
    rate = _rate(topic, samples)
    return TopicSummary(
        topic_name=topic.name,
        is_internal=topic.is_internal,
        partitions_count=topic.partition_count,
        offline_partitions_count=topic.offline_count,
        records=topic.records,
        bytes=topic.size_bytes,
        records_in_per_s=None if rate is None else round(rate, 3),
        consumer_groups=len(topic.lags),
        max_lag=topic.max_lag,
        cleanup_policy=policy,
    )


def _segment(each: administration_pb2.DescribeSegmentsResponse.Segment) -> Segment:
    return Segment(
        topic_name=each.topic,
        partition_id=each.partition,
        base_offset=each.base_offset,
        folder=each.folder,
        bytes=each.size_bytes,
        offset_index_bytes=each.offset_index_bytes,
        time_index_bytes=each.time_index_bytes,
        max_timestamp=None if each.max_timestamp < 0 else each.max_timestamp,
        is_active=each.is_active,
        index_health=_Health.Name(each.index_health).lower(),  # type: ignore[arg-type]  # the enum's names
    )


def next_url(request: Request, next_query: str | None) -> str | None:
    """Return the URL of the next page, which keeps the other parameters."""
    if next_query is None:
        return None
    kept = [(name, value) for name, value in request.query_params.multi_items() if not name.startswith("page_")]
    query = "&".join(filter(None, (urlencode(kept), next_query)))
    return f"{base_url(request)}{request.scope['path']}?{query}"
