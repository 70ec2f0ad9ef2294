"""One module per API, named as in protocol_lib/messages. What is listed here is served, advertised and documented."""

from typing import Final

from gateway_svc.handler import Handler
from gateway_svc.handlers import (
    api_versions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)

HANDLERS: Final[tuple[Handler, ...]] = (
    produce.HANDLER,
    fetch.HANDLER,
    list_offsets.HANDLER,
    metadata.HANDLER,
    offset_commit.HANDLER,
    offset_fetch.HANDLER,
    find_coordinator.HANDLER,
    join_group.HANDLER,
    heartbeat.HANDLER,
    leave_group.HANDLER,
    sync_group.HANDLER,
    describe_groups.HANDLER,
    list_groups.HANDLER,
    api_versions.HANDLER,
    create_topics.HANDLER,
    delete_topics.HANDLER,
    delete_records.HANDLER,
    init_producer_id.HANDLER,
    offset_for_leader_epoch.HANDLER,
    describe_configs.HANDLER,
    delete_groups.HANDLER,
    offset_delete.HANDLER,
)
