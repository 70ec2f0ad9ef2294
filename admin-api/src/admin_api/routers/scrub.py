"""The scrub: when all segments were last checked, and the damaged bytes that were cut out of logs."""

from __future__ import annotations

from broker_contract.acls import Operation
from fastapi import FastAPI

from admin_api.needs import Calls, on_cluster
from admin_api.routers.operations import Operations
from admin_api.schemas.administration import QuarantinedFile, Scrub

#: Files that are named.
FILES_MAX = 1000


def add_operations(app: FastAPI) -> None:
    Operations(app, "Cluster (api/v1)").get(
        "/api/v1/storage/scrub", "getScrub", get_scrub, needs=on_cluster(Operation.DESCRIBE)
    )


async def get_scrub(calls: Calls) -> Scrub:
    """Return when all segments were last read and checked, and the files of damaged bytes that are kept."""
    found = await calls.scrub(FILES_MAX)
    return Scrub(
        last_at=found.last_ms or None,
        next_at=found.next_ms or None,
        damaged_segments=found.damaged_segments,
        unreadable_batches=found.unreadable_batches,
        quarantine=[
            QuarantinedFile(
                topic_name=each.topic,
                partition_id=each.partition,
                path=each.path,
                bytes=each.size_bytes,
                modified_at=each.modified_ms,
            )
            for each in found.files
        ],
        is_truncated=found.has_more,
    )
