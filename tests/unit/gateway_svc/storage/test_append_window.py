"""How much is on its way to storage: one large request next to small ones, two alone."""

from gateway_svc.storage.append_window import LARGE_BYTES, NARROW_BYTES, WIDE_AFTER, WIDE_BYTES, AppendWindow

BATCH = 1_000_000
SMALL = LARGE_BYTES - 1


def passed(window: AppendWindow, size: int, times: int = 1) -> None:
    for _ in range(times):
        window.begin(size)
        window.end(size)


def test_a_large_request_waits_for_another_and_a_small_one_does_not(window: AppendWindow) -> None:
    assert (window.admits(BATCH), window.admits(SMALL)) == (True, True)
    window.begin(BATCH)
    assert (window.admits(BATCH), window.admits(LARGE_BYTES), window.admits(SMALL)) == (False, False, True)
    window.begin(4 * NARROW_BYTES - BATCH)
    assert window.admits(SMALL) is False


def test_two_large_requests_are_on_their_way_once_no_small_one_has_come_for_a_while(window: AppendWindow) -> None:
    passed(window, BATCH, WIDE_AFTER - 1)
    window.begin(BATCH)
    assert window.admits(BATCH) is False
    window.end(BATCH)
    window.begin(BATCH)
    assert window.admits(BATCH) is True
    window.begin(WIDE_BYTES - BATCH)
    assert window.admits(BATCH) is False


def test_a_small_request_ends_that_at_once_and_it_begins_again(window: AppendWindow) -> None:
    passed(window, BATCH, WIDE_AFTER)
    window.begin(BATCH)
    window.begin(SMALL)
    assert window.admits(BATCH) is False
    window.end(SMALL)
    assert window.admits(BATCH) is False
    window.end(BATCH)
    passed(window, BATCH, WIDE_AFTER - 2)
    assert window.limit == NARROW_BYTES
    passed(window, BATCH)
    assert window.limit == WIDE_BYTES


def test_a_waiting_connection_is_called_when_a_frame_was_received(window: AppendWindow) -> None:
    called: list[str] = []
    window.begin(BATCH)
    assert window.full is True
    window.wait("one", lambda: called.append("one"))
    window.end(BATCH)
    assert (called, window.used, window.full) == (["one"], 0, False)
