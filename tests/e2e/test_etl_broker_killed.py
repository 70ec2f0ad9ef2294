"""Storage and gateway are killed while a pipeline without end runs: it goes on, and the table has each record once."""

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(900)]

from support.etl_runs import Continuous, Etl, until  # noqa: E402
from up_process import RunningUp  # noqa: E402


def test_a_run_without_end_outlives_storage_and_gateway(tmp_path, spark):
    data = tmp_path / "data"
    with RunningUp("--kafka-port", "0", "--http-port", "0", "--processes", "--data-dir", str(data)) as up:
        etl = Etl(tmp_path, up.kafka, spark)
        etl.produce(0, 1, 2)
        with Continuous(etl) as continuous:
            for number, service in enumerate(("storage-svc", "gateway-svc"), 1):
                until(lambda number=number: etl.metrics.health()["batches"] >= number)
                up.kill(service)
                etl.produce(*range(10 * number, 10 * number + 5))
            until(lambda: continuous.error is not None or len(etl.ids()) == 13)
        assert continuous.error is None
        assert etl.ids() == [0, 1, 2, *range(10, 15), *range(20, 25)]
