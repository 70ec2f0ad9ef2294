"""The bench's check notices each fault that it exists for."""

from pathlib import Path

import millrace
import pytest
from flood import Flood, produce
from raw import batch
from readback import ReadBackError, check

FLOOD = Flood("t", 3_000)
REQUESTS = 5
RECORDS = REQUESTS * FLOOD.records


def test_a_record_too_few_or_too_many() -> None:
    with pytest.raises(ReadBackError, match="ends at 9, and 10 records were acknowledged"):
        check("localhost:1", "t", 0, 9, 10, None)


def test_records_that_were_not_sent_that_are_not_there_and_that_changed(tmp_path: Path) -> None:
    with millrace.Broker(data_dir=tmp_path, topics="t") as broker:
        address = broker.bootstrap_servers
        _, data = produce(address, FLOOD, REQUESTS)
        check(address, "t", 0, RECORDS, RECORDS, data)

        with pytest.raises(ReadBackError, match="the batch at 0 is not what was sent"):
            check(address, "t", 0, RECORDS, RECORDS, batch(FLOOD.records, FLOOD.record_bytes))

        with pytest.raises(ReadBackError, match=f"nothing is read at {RECORDS} below the end {RECORDS + 1}"):
            check(address, "t", 0, RECORDS + 1, RECORDS + 1, data)

    with (tmp_path / "t-0" / "00000000000000000000.log").open("r+b") as log:
        log.seek(3 * len(data) + 100)
        log.write(b"\0\0\0\0")
    with (
        millrace.Broker(data_dir=tmp_path) as broker,
        pytest.raises(ReadBackError, match=f"the batch at {3 * FLOOD.records} does not have its CRC"),
    ):
        check(broker.bootstrap_servers, "t", 0, RECORDS, RECORDS, None)
