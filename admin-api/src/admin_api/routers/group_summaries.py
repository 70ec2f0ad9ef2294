"""Consumer groups at a glance: their states, members and lags."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Request

from admin_api import groups, overview
from admin_api.needs import HIDES, Calls
from admin_api.paging import BATCH, PageQuery
from admin_api.routers.insight import ROWS_MAX, next_url
from admin_api.routers.operations import Operations
from admin_api.samples import Samples
from admin_api.schemas.administration import GroupSort, GroupSummary, GroupSummaryList


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Consumer groups (api/v1)")
    operations.get("/api/v1/consumer-groups", "listConsumerGroupSummaries", list_group_summaries, needs=HIDES)


async def list_group_summaries(
    calls: Calls,
    request: Request,
    paging: PageQuery,
    sort: Annotated[GroupSort, Query(description="Names rise, the lag falls.")] = "name",
    q: Annotated[str, Query(max_length=1000, description="A part of the group's id, in any case.")] = "",
    topic: Annotated[
        str | None, Query(max_length=249, description="Only groups that committed an offset in it, with its lag.")
    ] = None,
) -> GroupSummaryList:
    """List consumer groups with their states, members and lags; at most 1,000 a page."""
    samples: Samples = request.app.state.samples
    types = await groups.types(calls)
    seen = await overview.take(calls)
    lags = seen.lags
    if topic is not None:
        found = seen.topics.get(topic)
        lags = found.lags if found is not None else {}
        if found is None:
            await calls.topic(topic)
    part = q.lower()
    chosen = [each for each in types if part in each.lower() and (topic is None or each in lags)]
    page = paging.cut(
        chosen,
        lambda group_id: (group_id,) if sort == "name" else (-lags.get(group_id, -1), group_id),
        rows_max=ROWS_MAX,
    )
    described = {}
    for at in range(0, len(page.rows), BATCH):
        some = {group_id: types[group_id] for group_id in page.rows[at : at + BATCH]}
        described.update({group.group_id: group for group in await groups.describe_some(calls, some)})
    topics: dict[str, int] = dict.fromkeys(page.rows, 0)
    for each in seen.topics.values():
        for group_id in each.lags.keys() & topics.keys():
            topics[group_id] += 1
    rows = [
        GroupSummary(
            consumer_group_id=group_id,
            state=described[group_id].state,
            type=described[group_id].type,
            members_count=len(described[group_id].members),
            topics_count=topics[group_id],
            lag=lags.get(group_id),
            lag_before=samples.oldest("lag", group_id),
            lag_seconds=_seconds(samples.newest("lag_ms", group_id)),
        )
        for group_id in page.rows
        if group_id in described  # else it has just gone
    ]
    return GroupSummaryList(data=rows, next=next_url(request, page.next_query))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
