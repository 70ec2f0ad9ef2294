"""Groups load the same from a compacted __consumer_offsets as from the one before."""

from __future__ import annotations

from storage_svc.log.config import OFFSETS_TOPIC, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.topics.configs import OFFSETS_TOPIC_CONFIGS, effective


async def test_offsets_survive_compaction(node):
    for offset in range(50):
        await node.commit("g", ("orders", 0, offset), ("orders", 1, 2 * offset))
    await node.commit("other", ("orders", 2, 7))
    before = {group: node.fetched(group) for group in ("g", "other")}
    assert before["g"] == {("orders", 0): 49, ("orders", 1): 98}
    await node.close()

    directory = DataFolder.open(node.path, LogSettings())
    config = LogConfig.from_properties(effective(OFFSETS_TOPIC_CONFIGS, {}))
    removed = 0
    for (topic, _), log in directory.logs.items():
        log.configure(config)
        if topic == OFFSETS_TOPIC and log.segments.active.size:
            log.roll(directory.clock())
            log.request_sync()
            directory.flusher.sync_now()
            statistics = Maintenance(directory).cleaner.clean_now(log)
            removed += statistics.records_read - statistics.records_kept
    assert removed >= 2 * 49
    await directory.close()

    await node.open()
    assert {group: node.fetched(group) for group in ("g", "other")} == before
    await node.commit("g", ("orders", 0, 50))
    assert node.fetched("g") == {("orders", 0): 50, ("orders", 1): 98}
