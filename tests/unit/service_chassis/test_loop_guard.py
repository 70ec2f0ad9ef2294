"""Which stalls the guard of the tests excuses (tests/support/loop_guard.py)."""

import pytest
from service_chassis.stall_watch import Stall
from support.loop_guard import excuse

_TEST = '  File "/x/tests/unit/test_a.py", line 1, in async test_a\n    await a()\n'
_HELP = '  File "/x/tests/unit/conftest.py", line 1, in help\n    a()\n'
_SLEEP = '  File "/x/tests/support/slow_disk.py", line 1, in sync\n    time.sleep(1)\n'
_PLAIN = '  File "/x/storage-svc/src/storage_svc/log.py", line 1, in append\n    sync()\n'
_ASYNC = '  File "/x/storage-svc/src/storage_svc/log.py", line 1, in async delete\n    sync()\n'
_CODEC = '  File "/x/protocol-lib/src/protocol_lib/batch.py", line 1, in build\n    crc()\n'
_IMPORT = '  File "/x/admin-api/src/admin_api/__main__.py", line 1, in async _serve\n    import a\n'


@pytest.mark.parametrize(
    ("calls", "counts"),
    [
        ((_TEST, _HELP), False),
        ((_TEST, _CODEC), False),
        ((_TEST, _PLAIN), False),
        ((_TEST, _HELP, _PLAIN, _SLEEP), False),
        ((_IMPORT,), False),
        ((_PLAIN,), True),
        ((_PLAIN, _CODEC), True),
        ((_PLAIN, _SLEEP), True),
        ((_ASYNC,), True),
        ((_TEST, _ASYNC), True),
        ((_TEST, _ASYNC, _PLAIN, _SLEEP), True),
    ],
)
def test_a_stall_counts_if_the_event_loop_of_a_service_would_have_it(calls: tuple[str, ...], counts: bool) -> None:
    assert (excuse(Stall(1.0, "".join(calls))) is None) == counts
