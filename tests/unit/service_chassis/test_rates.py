import pytest
from service_chassis.rates import BURST_S, KEYS_MAX, Rates


def test_the_table_of_rates_is_bounded() -> None:
    now = 0.0
    rates = Rates(10, lambda: now)
    assert [rates.wait_s("first") for _ in range(int(10 * BURST_S))] == [0.0] * 100
    assert rates.wait_s("first") == pytest.approx(0.1)
    for number in range(KEYS_MAX - 1):
        assert rates.wait_s(str(number)) == 0.0
    assert rates.wait_s("first") > 0
    rates.wait_s("one more")
    assert len(rates) == KEYS_MAX
    assert rates.wait_s("first") > 0, "the one used last stays"
