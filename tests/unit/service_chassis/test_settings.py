import enum
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from service_chassis.settings import ServiceSettings, SettingsError, reference, setting


class Colour(enum.Enum):
    RED = "red"
    DARK_BLUE = "dark-blue"


class Example(ServiceSettings):
    size_max: int = setting(7, ge=1, description="Largest size | in\nthings.")
    folder: Path = setting(Path("data"), description="A folder.")
    colour: Colour = setting(Colour.RED, description="A colour.")
    age_ms: int | None = setting(None, ge=0, le=10**6, description="An age. Empty: any.")
    ratio: float = setting(0.5, gt=0.25, le=1, description="A ratio.")


class Lively(Example):
    """Another default of an inherited field, which keeps its bounds and its meaning."""

    size_max: int = 8
    log_level: Literal["debug", "info", "warning", "error"] = "error"

    def check(self):
        super().check()
        if self.age_ms == self.size_max:
            raise ValueError("age_ms and size_max are equal")


class Silent(ServiceSettings):
    quiet: bool = False


def test_environment_gives_values_and_arguments_win(monkeypatch):
    monkeypatch.setenv("MILLRACE_SIZE_MAX", "12")
    monkeypatch.setenv("MILLRACE_UNKNOWN", "ignored")
    assert Example().size_max == 12
    assert Example(size_max=13).size_max == 13


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("size_max", " 12 ", 12),
        ("size_max", "1_000", 1000),
        ("size_max", "12.0", 12),
        ("ratio", "1e0", 1.0),
        ("folder", "/data", Path("/data")),
        ("colour", "dark-blue", Colour.DARK_BLUE),
        ("age_ms", "5", 5),
        ("age_ms", "", None),
        ("stop_on_stdin", "TRUE", True),
        ("stop_on_stdin", "off", False),
        ("log_level", "debug", "debug"),
        ("event_loop_stall_file", "", ""),
    ],
)
def test_a_text_becomes_a_value_of_the_fields_type(monkeypatch, name, text, value):
    monkeypatch.setenv(f"MILLRACE_{name.upper()}", text)
    found = getattr(Example(), name)
    assert (found, type(found)) == (value, type(value))


def test_an_argument_may_have_the_type_already():
    given = {"size_max": 9, "folder": Path("x"), "colour": Colour.DARK_BLUE, "age_ms": None, "stop_on_stdin": True}
    settings = Example(**given)
    assert {name: getattr(settings, name) for name in given} == given


def test_errors_name_every_variable_and_no_value(monkeypatch):
    monkeypatch.setenv("MILLRACE_SIZE_MAX", "hunter2")
    monkeypatch.setenv("MILLRACE_LOG_LEVEL", "loud")
    with pytest.raises(SettingsError) as caught:
        Example()
    assert str(caught.value) == (
        "MILLRACE_LOG_LEVEL: must be 'debug', 'info', 'warning' or 'error'; MILLRACE_SIZE_MAX: not a whole number"
    )
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size_max": 0}, "MILLRACE_SIZE_MAX: must be 1 or more"),
        ({"size_max": "1" * 5000}, "MILLRACE_SIZE_MAX: too many digits"),
        ({"size_max": "1e3"}, "MILLRACE_SIZE_MAX: not a whole number"),
        ({"size_max": "²"}, "MILLRACE_SIZE_MAX: not a whole number"),
        ({"size_max": "١٢"}, "MILLRACE_SIZE_MAX: not a whole number"),
        ({"size_max": 1.5}, "MILLRACE_SIZE_MAX: not a whole number"),
        ({"size_max": float("nan")}, "MILLRACE_SIZE_MAX: not a whole number"),
        ({"size_max": None}, "MILLRACE_SIZE_MAX: not a whole number"),
        ({"age_ms": "soon"}, "MILLRACE_AGE_MS: not a whole number"),
        ({"age_ms": 10**6 + 1}, "MILLRACE_AGE_MS: must be 1000000 or less"),
        ({"ratio": "nan"}, "MILLRACE_RATIO: must be above 0.25"),
        ({"ratio": "inf"}, "MILLRACE_RATIO: must be 1 or less"),
        ({"colour": "blue"}, "MILLRACE_COLOUR: must be 'red' or 'dark-blue'"),
        ({"folder": 1}, "MILLRACE_FOLDER: not a path"),
        ({"event_loop_stall_file": 1}, "MILLRACE_EVENT_LOOP_STALL_FILE: not a text"),
        ({"stop_deadline_s": 0}, "MILLRACE_STOP_DEADLINE_S: must be above 0"),
        ({"stop_deadline_s": 4000}, "MILLRACE_STOP_DEADLINE_S: must be 3600 or less"),
        ({"stop_deadline_s": "soon"}, "MILLRACE_STOP_DEADLINE_S: not a number"),
        ({"stop_on_stdin": "perhaps"}, "MILLRACE_STOP_ON_STDIN: neither true nor false"),
        ({"stop_on_stdin": ""}, "MILLRACE_STOP_ON_STDIN: neither true nor false"),
    ],
)
def test_a_fault_has_our_words(given, words):
    with pytest.raises(SettingsError) as caught:
        Example(**given)
    assert str(caught.value) == words


def test_a_subclass_gives_another_default_within_the_same_bounds():
    assert (Lively().size_max, Lively().log_level) == (8, "error")
    assert (Example().size_max, Example().log_level) == (7, "info")
    with pytest.raises(SettingsError, match="MILLRACE_SIZE_MAX: must be 1 or more"):
        Lively(size_max=0)


def test_values_that_do_not_fit_each_other():
    with pytest.raises(SettingsError, match=r"^age_ms and size_max are equal$"):
        Lively(age_ms=8)


def test_which_fields_were_given(monkeypatch):
    monkeypatch.delenv("MILLRACE_EVENT_LOOP_STALL_FILE", raising=False)  # the tests' guard of event loops
    monkeypatch.setenv("MILLRACE_SIZE_MAX", "7")
    assert Example(colour="red").given == {"size_max", "colour"}


def test_a_name_that_no_field_has():
    with pytest.raises(TypeError, match=r"^Example has no setting size_min$"):
        Example(size_min=1)


def test_settings_do_not_change_but_copies_do():
    settings = Example()
    with pytest.raises(AttributeError, match="size_max"):
        settings.size_max = 8
    assert (settings.replaced(size_max=8).size_max, settings.size_max) == (8, 7)


def test_of_changed_settings_the_others_are_left_out(monkeypatch):
    monkeypatch.delenv("MILLRACE_EVENT_LOOP_STALL_FILE", raising=False)  # the tests' guard of event loops
    shown = Example(size_max=8, folder="x", colour="dark-blue", ratio=0.5).shown(changed_only=True)
    assert shown == {"size_max": 8, "folder": "x", "colour": "dark-blue"}


def test_reference():
    assert reference([Example], leave_out=ServiceSettings.fields) == (
        "| variable | default | meaning |\n|---|---|---|\n"
        "| `MILLRACE_SIZE_MAX` | `7` | Largest size \\| in things. |\n"
        "| `MILLRACE_FOLDER` | `data` | A folder. |\n"
        "| `MILLRACE_COLOUR` | `red` | A colour. |\n"
        "| `MILLRACE_AGE_MS` | (empty) | An age. Empty: any. |\n"
        "| `MILLRACE_RATIO` | `0.5` | A ratio. |\n"
    )


def test_reference_needs_descriptions():
    with pytest.raises(SettingsError, match=r"Silent\.quiet has no description"):
        reference([Silent])


def test_reference_refuses_one_name_with_two_meanings():
    class Other(ServiceSettings):
        size_max: int = setting(8, description="Something else.")

    with pytest.raises(SettingsError, match="MILLRACE_SIZE_MAX"):
        reference([Example, Other])


def test_import_is_light():
    """Every process of the broker and short-lived commands read a settings class."""
    heavy = "{'grpc', 'prometheus_client', 'pydantic', 'asyncio'}"
    code = f"import sys, service_chassis.settings; print(sorted({heavy} & {{*sys.modules}}))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"
