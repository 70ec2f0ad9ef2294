"""Values of broker configs, as Apache Kafka's ConfigDef parses and shows them."""

from __future__ import annotations

import pytest
from storage_svc.topics.config_values import (
    VALUE_LENGTH_MAX,
    any_value,
    at_least,
    between,
    checked,
    java_double,
    normal,
)
from storage_svc.topics.configs import ConfigType, InvalidConfigError

T = ConfigType


@pytest.mark.parametrize(
    ("kind", "given", "shown"),
    [
        (T.INT, " 07 ", "7"),
        (T.LONG, "+9223372036854775807", "9223372036854775807"),
        (T.LONG, "-5", "-5"),
        (T.BOOLEAN, " TRUE", "true"),
        (T.DOUBLE, "1.5e6", "1500000.0"),
        (T.DOUBLE, "0", "0.0"),
        (T.LIST, " a , b", "a,b"),
        (T.LIST, "", ""),
        (T.STRING, " gzip ", "gzip"),
    ],
)
def test_values_in_their_normal_form(kind: ConfigType, given: str, shown: str) -> None:
    assert normal("key", kind, given) == shown


OF_ANOTHER_TYPE = [(T.INT, "2147483648"), (T.INT, "1e3"), (T.INT, "\u0663"), (T.LONG, ""), (T.LONG, "9" * 5000)]
OF_ANOTHER_TYPE += [(T.SHORT, "32768"), (T.DOUBLE, "much"), (T.DOUBLE, "nan"), (T.BOOLEAN, "maybe")]


@pytest.mark.parametrize(("kind", "given"), OF_ANOTHER_TYPE)
def test_values_of_another_type(kind: ConfigType, given: str) -> None:
    fault = "Expected value to be either true or false" if kind is T.BOOLEAN else f"Not a number of type {kind.name}"
    with pytest.raises(InvalidConfigError) as caught:
        normal("key", kind, given)
    assert str(caught.value) == f"Invalid value {given[:100]} for configuration key: {fault}"


def test_bounds() -> None:
    assert checked("key", T.INT, "5", at_least(5)) == "5"
    with pytest.raises(InvalidConfigError, match=r"^Invalid value 4 for configuration key: Value must be at least 5$"):
        checked("key", T.INT, "4", at_least(5))
    with pytest.raises(InvalidConfigError, match=r"^Invalid value 2.0 for .*: Value must be no more than 1$"):
        checked("key", T.DOUBLE, "2", between(0, 1))
    with pytest.raises(InvalidConfigError, match="exceeds the maximum value size of 32767 bytes"):
        checked("key", T.STRING, "x" * (VALUE_LENGTH_MAX + 1), any_value)


JAVAS = {0.5: "0.5", 9999999.0: "9999999.0", 1e7: "1.0E7", 1.25e-4: "1.25E-4", -3.0: "-3.0", float("inf"): "Infinity"}
JAVAS[1.7976931348623157e308] = "1.7976931348623157E308"


@pytest.mark.parametrize(("number", "text"), JAVAS.items())
def test_numbers_as_java_writes_them(number: float, text: str) -> None:
    assert java_double(number) == text
