"""The counts of `make profile`: of metrics pages and of strace's lines."""

import pytest
from profiling import Calls, Served, counters

GATEWAY = """\
# HELP millrace_kafka_requests_total Requests answered.
millrace_storage_frames_total{direction="sent"} 3.0
millrace_storage_frames_total{direction="received"} 4.0
millrace_kafka_requests_total{api="Produce",version="9"} 10.0
millrace_kafka_requests_total{api="Fetch",version="12"} 5.0
millrace_kafka_requests_refused_total{reason="size"} 7.0
kafka_server_brokertopicmetrics_bytesin_total{topic="a"} 2e+06
kafka_server_brokertopicmetrics_bytesout_total{topic="a"} 1e+06
kafka_server_brokertopicmetrics_messagesin_total{topic="a"} 9.0
"""


def test_what_was_served_is_added_up_over_processes_and_taken_since() -> None:
    served = Served.of([GATEWAY, "", GATEWAY])

    assert served == Served(frames=14, requests=30, record_bytes=6e6)
    assert served.since(Served.of([GATEWAY])) == Served(frames=7, requests=15, record_bytes=3e6)
    assert Served().since(Served()).record_bytes == 1  # it is divided by


@pytest.mark.parametrize(
    ("line", "count", "moved"),
    [
        (b'12 recvfrom(7, ""..., 65536, 0, NULL, NULL) = 4096', 1, 4096),
        (b"[pid 12] writev(7, [{iov_base=..., iov_len=5}], 1) = 5", 1, 5),
        (b'12 <... pread64 resumed>""..., 100, 0) = 100', 1, 100),
        (b"12 sendfile(7, 8, [0] => [100], 100) = 100", 1, 0),
        (b"12 epoll_wait(4, [], 8, -1) = 3", 1, 0),
        (b"12 recvfrom(7, 0x1, 65536, 0, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable)", 1, 0),
        (b"12 read(7,  <unfinished ...>", 0, 0),
        (b"12 exit_group(0) = ?", 0, 0),
        (b"12 --- SIGTERM {si_signo=SIGTERM} ---", 0, 0),
    ],
)
def test_calls_count_when_they_end_and_move_what_they_say(line: bytes, count: int, moved: int) -> None:
    calls = Calls()
    calls.add(line + b"\n")

    assert calls == Calls(count, moved)


def test_the_row() -> None:
    served = Served(frames=8, requests=10, record_bytes=2e6)

    assert counters(served, served, Calls(25, 5_000_000)).split() == ["4.00", "2.5", "2.50"]
    assert counters(Served(requests=10, record_bytes=2e6), served, Calls(25, 5_000_000)).split() == ["2.5", "2.50"]
    assert counters(served, served, Calls()).split() == ["4.00"]
